// The four tools of `workbench.py`, for the Node programs.
const { readFileSync, writeFileSync } = require('node:fs');

const text = (description) => ({ type: 'string', description });
const declared = (properties) => ({ type: 'object', properties, required: Object.keys(properties) });

exports.TASK = process.argv[2];
exports.MODEL = 'scripted-1';
exports.STEPS = 200;

exports.TOOLS = {
  read_file: {
    description: 'Read a file.',
    parameters: declared({ path: text('Which file.') }),
    run: ({ path }) => readFileSync(path, 'utf8'),
  },
  search: {
    description: 'Find the lines of a file that hold a text.',
    parameters: declared({ pattern: text('The text.'), path: text('Which file.') }),
    run: ({ pattern, path }) => {
      const lines = readFileSync(path, 'utf8').split('\n').map((line, at) => `${at + 1}:${line}`);
      return lines.filter((line) => line.includes(pattern)).join('\n') || 'no such line';
    },
  },
  write_file: {
    description: 'Write a file.',
    parameters: declared({ path: text('Which file.'), text: text('All that it is to hold.') }),
    run: ({ path, text }) => {
      writeFileSync(path, text);
      return `wrote ${path}`;
    },
  },
  edit_file: {
    description: 'Replace a text in a file.',
    parameters: declared({ path: text('Which file.'), old: text('What stands there.'), new: text('What is to.') }),
    run: ({ path, old, new: next }) => {
      writeFileSync(path, readFileSync(path, 'utf8').replaceAll(old, next));
      return `changed ${path}`;
    },
  },
};
