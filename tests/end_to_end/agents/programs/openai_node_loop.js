// openai-node's own loop of tools, streamed.
const OpenAI = require('openai');
const { MODEL, STEPS, TASK, TOOLS } = require('./workbench.js');

const tools = Object.entries(TOOLS).map(([name, { description, parameters, run }]) => ({
  type: 'function',
  function: { name, description, parameters, parse: JSON.parse, function: run },
}));
const messages = [
  { role: 'system', content: 'You are a careful engineer.' },
  { role: 'user', content: TASK },
];

const client = new OpenAI(); // OPENAI_BASE_URL and OPENAI_API_KEY
client.chat.completions
  .runTools({ model: MODEL, messages, tools, stream: true }, { maxChatCompletions: STEPS })
  .finalContent()
  .then(console.log);
