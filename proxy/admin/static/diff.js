// Two texts compared line by line: which lines are the same, which were left out, which are new.

import { h } from "./dom.js";

const CELLS_MAX = 4_000_000;
const RUN_LINES = 6;
const SAME = "same", GONE = "gone", NEW = "new";

const bare = (line) => line.replace(/\s+/g, " ").trim();

// [[kind, line], …] in the order of reading: lines that are gone stand before those that replaced them. Null if the texts
// are too long to be compared while somebody waits.
export function compare(before, after) {
  const one = before.split("\n"), other = after.split("\n");
  if (one.length * other.length > CELLS_MAX) return null;
  const pairs = longest(one, other);
  const found = [];
  let at = 0, to = 0;
  for (const [left, right] of [...pairs, [one.length, other.length]]) {
    while (at < left) found.push([GONE, one[at++]]);
    while (to < right) found.push([NEW, other[to++]]);
    if (at < one.length && to < other.length) { found.push([SAME, other[to++]]); at += 1; }
  }
  return found;
}

// The longest common subsequence of lines, as pairs of their places.
function longest(one, other) {
  const left = one.map(bare), right = other.map(bare);
  const wide = right.length + 1;
  const sizes = new Uint16Array((left.length + 1) * wide);
  for (let i = left.length - 1; i >= 0; i -= 1) {
    for (let j = right.length - 1; j >= 0; j -= 1) {
      sizes[i * wide + j] = left[i] === right[j]
        ? sizes[(i + 1) * wide + j + 1] + 1
        : Math.max(sizes[(i + 1) * wide + j], sizes[i * wide + j + 1]);
    }
  }
  const pairs = [];
  for (let i = 0, j = 0; i < left.length && j < right.length;) {
    if (left[i] === right[j]) pairs.push([i++, j++]);
    else if (sizes[(i + 1) * wide + j] >= sizes[i * wide + j + 1]) i += 1;
    else j += 1;
  }
  return pairs;
}

const line = ([kind, text]) => h("span", { class: `diff ${kind}` }, text, "\n");

// One side by itself: lines that the other side does not have are marked.
export const side = (changes, kept) =>
  h("pre", { class: "said", tabindex: 0 }, changes.filter(([kind]) => kind === SAME || kind === kept).map(line));

// Both in one column. Long runs of lines that are gone are folded up, and open at a click.
export function unified(changes) {
  const drawn = [];
  for (let at = 0; at < changes.length;) {
    let end = at;
    while (end < changes.length && changes[end][0] === changes[at][0]) end += 1;
    const run = changes.slice(at, end);
    if (run.length > RUN_LINES && run[0][0] !== NEW) {
      const words = run[0][0] === GONE ? `${run.length} lines left out` : `${run.length} lines, the same`;
      drawn.push(h("details", { class: `diff ${run[0][0]}` }, h("summary", null, words), run.map(line)));
    } else {
      drawn.push(...run.map(line));
    }
    at = end;
  }
  return h("pre", { class: "said whole", tabindex: 0 }, drawn);
}
