// The Vercel AI SDK with its OpenAI-compatible provider, streamed.
const { createOpenAICompatible } = require('@ai-sdk/openai-compatible');
const { jsonSchema, stepCountIs, streamText, tool } = require('ai');
const { MODEL, STEPS, TASK, TOOLS } = require('./workbench.js');

const provider = createOpenAICompatible({
  name: 'proxied',
  baseURL: process.env.OPENAI_BASE_URL,
  apiKey: process.env.OPENAI_API_KEY,
  includeUsage: true,
});
const tools = Object.entries(TOOLS).map(([name, { description, parameters, run }]) => [
  name,
  tool({ description, inputSchema: jsonSchema(parameters), execute: run }),
]);

async function main() {
  const run = streamText({
    model: provider(MODEL),
    system: 'You are a careful engineer.',
    prompt: TASK,
    tools: Object.fromEntries(tools),
    stopWhen: stepCountIs(STEPS),
  });
  console.log(await run.text);
}

main();
