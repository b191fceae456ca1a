// openai-node, driven from outside: a job on each line of stdin, its outcome on a line of stdout.
import OpenAI from 'openai';
import { createInterface } from 'node:readline';

for await (const line of createInterface({ input: process.stdin })) {
  console.log(JSON.stringify(await outcome(JSON.parse(line))));
}

async function outcome(job) {
  const client = new OpenAI({ baseURL: job.base_url, apiKey: 'sk-made-up', maxRetries: 0, timeout: 20_000 });
  const seen = { text: '', calls: [], finish: null, usage: null, raised: null };
  try {
    if (job.call) seen.value = await other(client, job);
    else if (job.args.stream) await readStream(await client.chat.completions.create(job.args), seen);
    else readCompletion(await client.chat.completions.create(job.args), seen);
  } catch (fault) {
    seen.raised = raised(fault);
  }
  return seen;
}

// Any other call of the library, by its dotted name.
async function other(client, job) {
  const names = job.call.split('.');
  const last = names.pop();
  const target = names.reduce((part, name) => part[name], client);
  return await target[last](...(Array.isArray(job.args) ? job.args : [job.args]));
}

function readCompletion(completion, seen) {
  const choice = completion.choices?.[0];
  if (!choice) return;
  seen.text = choice.message.content ?? '';
  seen.calls = (choice.message.tool_calls ?? []).map((call) => [call.function.name, call.function.arguments]);
  seen.finish = choice.finish_reason;
  seen.usage = completion.usage?.total_tokens ?? null;
}

async function readStream(stream, seen) {
  for await (const chunk of stream) {
    seen.usage = chunk.usage?.total_tokens ?? seen.usage;
    for (const choice of chunk.choices ?? []) {
      seen.text += choice.delta.content ?? '';
      seen.finish = choice.finish_reason ?? seen.finish;
      for (const part of choice.delta.tool_calls ?? []) {
        const call = (seen.calls[part.index] ??= ['', '']);
        call[0] += part.function.name ?? '';
        call[1] += part.function.arguments ?? '';
      }
    }
  }
}

function raised(fault) {
  return {
    type: fault.constructor.name,
    status: fault.status ?? null,
    code: fault.code ?? null,
    message: String(fault.message),
    retry_after: fault.headers?.get?.('retry-after') ?? null,
    request_id: fault.requestID ?? null,
  };
}
