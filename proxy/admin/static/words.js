// What the proxy calls by one word, in words for people.

import { h } from "./dom.js";
import { many } from "./format.js";

// What became of a message.
export const FATES = {
  kept: "sent as it is",
  pinned: "kept, because it is pinned",
  cleared: "shortened by a step",
  folded: "told by a note",
  summarised: "told by a summary",
};

// What was done with a request.
export const ACTIONS = {
  none: "it went on as it came",
  applied: "a block made earlier stood in it",
  created: "a new block was made for it",
  observed: "only observed: it went on as it came",
  off: "no new blocks were allowed",
  bypassed: "the client asked to be left alone",
  "failed-open": "a fault of ours: it went on as it came",
};

// Why a block was made, or none.
const REASONS = {
  opening: "the first thing was clipped on arrival",
  stride: "enough old results had piled up to be worth a rewrite",
  cold: "the upstream's cache had forgotten the conversation anyway",
  window: "the model's window was nearly full",
  cliff: "a price cliff was near",
  forced: "the client asked for it",
  overflow_retry: "the upstream had refused it for its size",
  floor: "nothing more can go",
  "switched-off": "compaction is switched off for it",
  "breaker-open": "blocks did not help it: no more are made until it has changed",
  "window-unknown": "the model's window is not known: old results go, nothing else",
};

export const reason = (name) => REASONS[name] ?? name;

const EVENTS = {
  "compaction-ended": "block made",
  "compaction-rehearsed": "block observed",
  "summary-ended": "summary",
  "breaker-opened": "breaker open",
  "refused-for-size": "too long",
  "prompt-cut-silently": "prompt cut",
  "failed-open": "fault of ours",
  "our-fault": "fault of ours",
  "store-failed": "store fails",
  "store-back": "store is back",
  "config-refused": "configuration refused",
  "config-reloaded": "configuration changed",
  "upstream-retried": "tried again",
  "path-not-compacted": "format not compacted",
  listening: "started",
};

export const event = (name) => EVENTS[name] ?? name;

// What an event says of itself: the sentence first, its figures small below.
export function account({ name, details }) {
  if (name.startsWith("compaction-")) return ofBlock(details);
  if (name === "summary-ended") return ofSummary(details);
  const { why, effect, advice, conversation: _, ...rest } = details;
  const figures = Object.entries(rest).map(([key, value]) => `${key.replaceAll("_", " ")}: ${plain(value)}`);
  const sentence = [why, effect, advice].filter(Boolean).join("; ");
  return h("span", { class: "details" }, sentence, figures.length ? h("small", null, figures.join(" · ")) : null);
}

const plain = (value) => (value !== null && typeof value === "object" ? JSON.stringify(value) : String(value));

function ofBlock(details) {
  const steps = (details.steps ?? []).filter((each) => each.messages);
  const step = (each) => `${each.step}: ${each.messages} messages, ${many(each.saved)} tokens`;
  return h("span", { class: "details" },
    `${reason(details.reason)}: ${many(details.tokens_before)} → ${many(details.tokens_after)} tokens, by `,
    h("code", null, details.policy), h("small", null, steps.map(step).join(" · ")));
}

function ofSummary(details) {
  const outcome = details.outcome === "made" ? "made" : `none: ${details.outcome}`;
  const tries = details.tries === 1 ? "at the first try" : `after ${details.tries} tries`;
  return h("span", { class: "details" },
    `${outcome} by ${details.model} ${tries}, ${details.seconds} s`,
    h("small", null, `read ${many(details.tokens_read)} tokens (${many(details.tokens_cached)} cached), `,
      `wrote ${many(details.tokens_written)}`));
}
