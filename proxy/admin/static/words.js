// The proxy's short names, in words for people.

import { h } from "./dom.js";
import { less, many } from "./format.js";

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
  window: "it had passed the policy's trigger",
  cliff: "a higher price tier was near",
  forced: "the client asked for it",
  overflow_retry: "the upstream had refused it as too long",
  "reasoning-removed": "the upstream had refused its signed reasoning",
  "shortened-refused": "the upstream had called the shortened history invalid",
  floor: "nothing more can be removed",
  "fetches-high": "agents of this team or key fetch again much of what was shortened: nothing new is, while it fits",
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

const NET = "share of Tokens in that was not forwarded; what agents fetched again is taken off Tokens in before";

// What counts in Usage, in Conversations, and in all tokens and money.
export const LOOKED_AT = "long enough that it may soon be shortened (with the default from some 25,000 tokens on, in a window "
  + "of 32,000 from some 10,000), or shortened already";

// The figures of all pages: a page shows those that it has.
const MEANINGS = {
  Failed: "no upstream answered, or an answer broke off in the middle; errors of upstreams are passed on",
  Eligible: `a request whose history is ${LOOKED_AT}; all others pass untouched, and only these are in Usage, in `
    + "Conversations, and in tokens and money",
  "Tokens in": "tokens of eligible requests as clients sent them, by the proxy's count",
  Forwarded: "tokens of the same requests as the upstream got them, by the proxy's count",
  "Tokens not sent": NET,
  "Less, net": NET,
  Cached: "share of the forwarded tokens that the upstream read from its cache, by its own usage",
  "Cached as sent": "the same, of requests to which the proxy added no cache mark and no cache key",
  "Cached with marks or key": "the same, of requests to which it added one",
  Rewrites: "times a history was shortened: old results cleared, or a summary in their place",
  "Fetched again": "results that bring again what had been shortened; the steps for them are charged to what is saved",
  Summaries: "calls of a model that were made to summarise old messages",
  Spent: "for prompts and summaries, if prices and usage are known; answers are not in it",
  "Spent on summaries": "the part of Spent that calls for summaries did cost",
  "Cost of the prompt": "the prompt as the upstream read it, at its prices; the answer is not in it",
  "Without proxy": "cost of the prompts as clients sent them, if everything sent before was cached; a request whose history is "
    + "over the window counts with what it did cost, because it could not have been sent",
  Saved: "Without proxy less Spent; a request whose history is over the window saves nothing, because it could not have been "
    + "sent without the proxy. Of one request, the cost of summaries is not in it",
  "Would save": "how much more would be saved if nothing were only observed (by mode, holdout or header), before the cost of summaries",
  "Added by the proxy": "time that a request spent in the proxy, before its first byte",
  "Too long": "refused by an upstream for its size; helped: accepted when sent again, shorter",
  "Internal errors": "the client's own bytes were forwarded, or a store or a disk did not answer",
  "Under the policy": "conversations that the policy of the attachment shortens when they are long enough",
  "Left alone": "conversations that its holdout forwarded as sent",
  Difference: "of Under the policy to Left alone, and its range: 95 % certain for all rows together",
};

export const meanings = (...names) => h("details", null, h("summary", null, "What these mean"),
  h("dl", { class: "meanings" }, names.map((name) => [h("dt", null, name), h("dd", null, MEANINGS[name])])));

// How much less was sent, of requests or of their sum.
export const lessNet = ({ tokens_raw: raw, tokens_unshortened: net, tokens_forwarded: sent }) =>
  `${less(net, sent)} less${net < raw ? ", net of what was fetched again" : ""}`;

export const reason = (name) => REASONS[name] ?? name;

const EVENTS = {
  "compaction-started": "rewrite due",
  "compaction-ended": "shortened",
  "compaction-observed": "would be shortened",
  "summary-ended": "summary",
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

export const event = (name) => EVENTS[name] ?? name.replaceAll("-", " ");

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
