// Conversations under a policy, compared with those that the holdout of its attachment left alone.

import { get } from "./api.js";
import { badge, empty, figure, h, note, prose, table } from "./dom.js";
import { exact, percent } from "./format.js";
import { options, redrawn } from "./controls.js";
import { toPolicy } from "./links.js";
import { meanings } from "./words.js";

const SPANS = [[7, "a week"], [31, "31 days"]];
const number = (value) => (value === null ? "–" : value.toLocaleString("en", { maximumSignificantDigits: 4 }));
const signed = (share) => `${share > 0 ? "+" : ""}${percent(share)}`;

export async function arms(place, _, query) {
  const days = Number(query.get("days")) || 31;
  return redrawn(place, async () => page(await get("/arms", { days }), days));
}

const page = (told, days) => [
  h("h1", null, "Compare"),
  h("div", { class: "controls" }, options("Span", SPANS, days, (span) => `#/compare?days=${span}`)),
  told.policies.length ? [
    told.policies.map(policy), meanings("Under the policy", "Left alone", "Difference", "Fetched again"),
  ] : empty("No conversations to compare", h("p", null,
    ...prose("Give an attachment a `holdout`, such as `{policy: default, holdout: 10}`: one conversation in ten is then"),
    " left as it is, and the others are set beside it here.")),
];

const policy = (told) => h("section", null,
  h("h2", null, toPolicy(told.policy, told.policy)),
  h("p", { class: "facts" }, told.conclusion),
  table(["Of each conversation", figure("Under the policy"), figure("Left alone"), figure("Difference"), "Verdict"], [
    ["conversations that ended", figure(exact(told.conversations.treated)), figure(exact(told.conversations["left-alone"])),
      figure("–"), `${exact(told.open)} more are open`],
    ["of these shortened", figure(exact(told.shortened)), figure("0"), figure("–"), "not tested"],
    ...told.measures.map((each) => [h("span", { title: each.meaning }, each.meaning), figure(number(each.treated)),
      figure(number(each.left_alone)), figure(difference(each)), verdict(each)]),
    ...["p50", "p95"].map((name) => [`seconds of a request, ${name}`, figure(number(told.seconds.treated[name])),
      figure(number(told.seconds["left-alone"][name])), figure("–"), "not tested"]),
    ["results fetched again, in all", figure(exact(told.fetched_again)), figure("0"), figure("–"), "not tested"],
  ], `Arms of policy ${told.policy}`, true),
  note(`A difference is certain if chance alone would show one, in any of these rows, in at most 5 of 100 comparisons. `,
    `None is told before there are enough conversations to notice one of ${percent(told.detectable)}.`));

const difference = ({ share, low, high }) => (share === null ? "–" : `${signed(share)} (${signed(low)} to ${signed(high)})`);

function verdict({ is_claimed: isClaimed, missing }) {
  if (isClaimed) return badge("certain", "good");
  return missing ? `${exact(missing)} more conversations` : "not certain";
}
