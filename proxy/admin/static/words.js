// The proxy's short names, in words for people.

import { h } from "./dom.js";
import { many } from "./format.js";

// The status of a message.
export const STATUSES = {
  kept: "forwarded as sent",
  pinned: "kept, because it is pinned",
  cleared: "shortened by a step",
  folded: "replaced by a note",
  summarised: "replaced by a summary",
};

// What the proxy did with a request.
export const ACTIONS = {
  none: "forwarded as sent",
  applied: "shortened as before",
  created: "shortened further",
  observed: "observed only: forwarded as sent",
  off: "compaction is switched off",
  bypassed: "forwarded as sent, as the client or an operator wants",
  "failed-open": "internal error: forwarded as sent",
};

// The reasons why a history was shortened, or not.
const REASONS = {
  opening: "a long first message was clipped",
  stride: "enough old results could go to pay for a rewrite",
  cold: "the upstream's cache had expired",
  window: "it had passed the policy's share of the model's window",
  cliff: "a higher price tier was near",
  forced: "the client asked for it",
  overflow_retry: "the upstream had refused it as too long",
  "reasoning-removed": "the upstream had refused its signed reasoning",
  "shortened-refused": "the upstream had called the shortened history invalid",
  floor: "nothing more can be removed",
  "fetches-high": "the team's agents fetch again much of what was shortened: nothing new is, while it fits",
  "switched-off": "compaction is switched off for it",
  "client-rewrites": "the client shortens its own results at every turn: switch that off there",
  "window-unknown": "the model's window is unknown: its size counts only against limits in tokens",
};

// The states of an operator's switch.
export const SWITCHES = {
  on: ["on", "histories are shortened as their policies say"],
  "still-fit": ["off, but still fit", "no new block is made unless the request would be refused as too long; behind a block, "
    + "long and repeated results are still cut as they arrive"],
  off: ["off", "no new block is made, and requests that become too long are refused; behind a block, long and repeated "
    + "results are still cut as they arrive"],
  bypass: ["bypass", "the clients' own histories are forwarded where they fit, else the shortened ones; shortened "
    + "further only if the request would be refused"],
};

export const reason = (name) => REASONS[name] ?? name;

const EVENTS = {
  "compaction-started": "to be shortened",
  "compaction-ended": "shortened",
  "compaction-observed": "would be shortened",
  "summary-ended": "summary",
  "client-rewrites": "client rewrites",
  "fetches-high": "much is fetched again",
  "fetches-low-again": "little is fetched again",
  "refused-for-size": "too long",
  "shortened-refused": "shortened history refused",
  "prompt-cut-silently": "prompt cut",
  "failed-open": "internal error",
  "our-fault": "internal error",
  "store-failed": "store fails",
  "store-back": "store is back",
  "config-refused": "configuration refused",
  "config-reloaded": "configuration changed",
  "switch-set": "compaction limited",
  "switch-lifted": "compaction on again",
  "upstream-retried": "tried again",
  listening: "started",
};

export const event = (name) => EVENTS[name] ?? name;

// An event: a sentence, with its figures small below.
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
  if (details.tokens_after === undefined) {
    return h("span", { class: "details" }, `${reason(details.reason)}: ${many(details.tokens_before)} tokens, by `,
      h("code", null, details.policy));
  }
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
