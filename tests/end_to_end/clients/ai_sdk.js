// The Vercel AI SDK with its OpenAI-compatible provider, driven from outside: a job on each line of stdin,
// its outcome on a line of stdout. Jobs come in OpenAI's words and are told to the SDK in its own.
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { generateText, jsonSchema, streamText, tool } from 'ai';
import { createInterface } from 'node:readline';

for await (const line of createInterface({ input: process.stdin })) {
  console.log(JSON.stringify(await outcome(JSON.parse(line))));
}

async function outcome(job) {
  const provider = createOpenAICompatible({
    name: 'proxied',
    baseURL: job.base_url,
    apiKey: 'sk-made-up',
    includeUsage: Boolean(job.args.stream_options),
  });
  const seen = { text: '', calls: [], finish: null, usage: null, raised: null };
  const call = { ...settings(job.args), model: provider(job.args.model), maxRetries: 0, onError: () => {} };
  try {
    if (job.args.stream) await readStream(streamText(call), seen);
    else await readWhole(await generateText(call), seen);
  } catch (fault) {
    seen.raised = raised(fault);
  }
  return seen;
}

function settings(args) {
  const tools = Object.fromEntries((args.tools ?? []).map((each) => [
    each.function.name,
    tool({ description: each.function.description, inputSchema: jsonSchema(each.function.parameters) }),
  ]));
  return {
    messages: messages(args.messages),
    allowSystemInMessages: true,
    ...(args.tools && { tools, toolChoice: choice(args.tool_choice) }),
    temperature: args.temperature,
    topP: args.top_p,
    seed: args.seed,
    maxOutputTokens: args.max_tokens,
    stopSequences: args.stop && [args.stop].flat(),
    providerOptions: args.reasoning_effort && { proxied: { reasoningEffort: args.reasoning_effort } },
  };
}

function choice(asked) {
  return asked?.function ? { type: 'tool', toolName: asked.function.name } : (asked ?? 'auto');
}

function messages(history) {
  const names = Object.fromEntries(history.flatMap((m) => m.tool_calls ?? []).map((c) => [c.id, c.function.name]));
  return history.map((message) => {
    if (message.role === 'tool') return { role: 'tool', content: [result(message, names)] };
    if (message.role === 'assistant') return { role: 'assistant', content: said(message) };
    if (message.role === 'developer') return { role: 'system', content: message.content };
    return { role: message.role, content: Array.isArray(message.content) ? message.content.map(part) : message.content };
  });
}

function result(message, names) {
  const output = { type: 'text', value: message.content };
  return { type: 'tool-result', toolCallId: message.tool_call_id, toolName: names[message.tool_call_id], output };
}

function said(message) {
  const calls = (message.tool_calls ?? []).map((call) => ({
    type: 'tool-call',
    toolCallId: call.id,
    toolName: call.function.name,
    input: JSON.parse(call.function.arguments),
  }));
  return [...(message.content ? [{ type: 'text', text: message.content }] : []), ...calls];
}

function part(given) {
  return given.type === 'image_url' ? { type: 'image', image: new URL(given.image_url.url) } : given;
}

async function readWhole(result, seen) {
  seen.text = result.text;
  seen.calls = result.toolCalls.map((call) => [call.toolName, JSON.stringify(call.input)]);
  seen.finish = result.finishReason;
  seen.usage = result.usage.totalTokens ?? null;
}

async function readStream(result, seen) {
  for await (const event of result.fullStream) {
    if (event.type === 'text-delta') seen.text += event.text;
    if (event.type === 'tool-call') seen.calls.push([event.toolName, JSON.stringify(event.input)]);
    if (event.type === 'error') throw event.error;
    if (event.type === 'finish') {
      seen.finish = event.finishReason;
      seen.usage = event.totalUsage.totalTokens ?? null;
    }
  }
}

function raised(fault) {
  const known = fault instanceof Error;
  return {
    type: known ? fault.name : typeof fault,
    status: fault?.statusCode ?? null,
    code: fault?.data?.error?.code ?? fault?.code ?? null,
    message: known ? String(fault.message) : JSON.stringify(fault),
    retry_after: fault?.responseHeaders?.['retry-after'] ?? null,
    request_id: fault?.responseHeaders?.['x-request-id'] ?? null,
  };
}
