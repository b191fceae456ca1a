// Spend, savings and tokens over time, by team, model, policy, key and more.

import { get } from "./api.js";
import { stacks } from "./charts.js";
import { empty, figure, h, note, table } from "./dom.js";
import { axis, cents, dollars, exact, lasting, less, many, percent } from "./format.js";
import { ofReplicas, options, redrawn, SPANS } from "./controls.js";
import { toPolicy } from "./links.js";
import { LOOKED_AT, meanings } from "./words.js";

const BY = ["team", "model", "policy", "key", "upstream", "tag", "user", "session"];
const LOCAL = ["tag", "user", "session"];
const MEASURES = {
  cost: { name: "Spend", of: (each) => each.cost, line: (each) => each.plain, written: dollars,
    told: "Spend on prompts and summaries", lined: "the same work without the proxy" },
  saved: { name: "Savings", of: (each) => each.saved, written: dollars, told: "Saved, summaries paid" },
  tokens: { name: "Tokens", of: (each) => each.tokens_forwarded, line: (each) => each.tokens_raw, written: many,
    told: "Tokens forwarded", lined: "as clients sent them" },
};
const NAMELESS = { team: "(no team)", key: "(own key)", user: "(not named)", session: "(not named)", tag: "(none)" };
const FILTER_OF = { team: "team", model: "model", user: "user", session: "session" };

export async function usage(place, _, query) {
  const at = {
    hours: Number(query.get("hours")) || 24,
    by: BY.includes(query.get("by")) ? query.get("by") : "team",
    of: query.get("of") in MEASURES ? query.get("of") : "cost",
    team: query.get("team") ?? "",
  };
  const months = LOCAL.includes(at.by) ? null : await get("/usage/months", { months: 2, by: at.by, team: at.team });
  return redrawn(place, async () => {
    const told = await get("/usage", { hours: at.hours, by: at.by, team: at.team });
    return [page(told, at), months?.months.length ? byMonth(months.months, at) : null];
  });
}

function page(told, at) {
  const link = (changed) => `#/usage?${new URLSearchParams({ ...at, ...changed })}`;
  const measure = MEASURES[at.of];
  return [
    h("h1", null, "Usage", at.team ? ` of team ${at.team}` : ""),
    h("div", { class: "controls" },
      options("Measure", Object.entries(MEASURES).map(([of, { name }]) => [of, name]), at.of, (of) => link({ of })),
      options("By", BY.map((by) => [by, by]), at.by, (by) => link({ by })),
      options("Span", SPANS, at.hours, (hours) => link({ hours }))),
    told.groups.length ? [
      h("section", null,
        h("div", { class: "row-head" }, h("h2", null, `${measure.name} by ${at.by}`), figures(told.total)),
        legend(told, at, measure),
        stacks(rows(told, at, measure), { told: `${measure.told}, over time, by ${at.by}`, written: measure.written }),
        told.total.priced < told.total.requests && at.of !== "tokens"
          ? note(`${exact(told.total.requests - told.total.priced)} of ${exact(told.total.requests)} requests have no `,
            "price: their upstream reported no usage, or the prices of their model are not known",
            told.unpriced.length ? ` (${told.unpriced.map(({ name, requests }) => `${name}: ${exact(requests)}`).join(", ")})` : "",
            ". No sum of money has them in it.") : null,
        note("Money is at the prices of the configuration (`prices` of an upstream), else at list prices."),
        ofReplicas(told),
        LOCAL.includes(at.by) ? note(`By ${at.by}, each replica knows only what it served itself, and nothing of deleted `,
          "conversations: the sums may be less than by team.") : null),
      h("section", null,
        h("h2", null, "In figures"),
        groups(told, at),
        meanings("Eligible", ...HEAD.filter((name) => name !== "Requests")),
        told.others ? note(`Listed are the ${exact(told.groups.length)} of ${exact(told.groups.length + told.others.groups)} `,
          "with the most tokens.") : null),
    ] : empty("No usage in this time", h("p", null,
      `Requests appear here once their history is ${LOOKED_AT}. `, h("a", { href: "#/requests" }, "All requests"))),
  ];
}

const MONTH_HEAD = [
  "Conversations", "Tokens in", "Forwarded", "Fetched again", "Spent", "Without proxy", "Saved", "Would save",
];

// This month and the one before; all thirteen are in the file.
const byMonth = (months, at) => h("section", null,
  h("div", { class: "row-head" }, h("h2", null, "Months"),
    h("a", {
      href: `/admin/api/usage/months?${new URLSearchParams({ by: at.by, team: at.team, format: "csv" })}`,
      download: `usage-by-${at.by}.csv`,
    }, "CSV of 13 months")),
  table(["Month", at.by[0].toUpperCase() + at.by.slice(1), ...MONTH_HEAD.map(figure)], months.map((each) => [
    each.month, toGroup(each[at.by], at),
    ...[exact(each.conversations), many(each.tokens_raw), many(each.tokens_forwarded), exact(each.refetches),
      spent(each), plain(each), saved(each), wouldSave(each)].map(figure),
  ]), "Usage by month", true),
  note("Months in UTC. A conversation counts in the month in which it began."));

// Columns of money: there is none without a known price.
const plain = (each) => (each.priced ? cents(each.plain) : "–");
const spent = (each) => (each.priced || each.spent ? cents(each.cost) : "–");
const saved = (each) => (each.priced || each.spent ? cents(each.saved) : "–");
const wouldSave = (each) => (each.would_save ? cents(each.would_save) : "–");

const figures = (total) => h("p", { class: "facts" },
  h("span", null, h("b", null, dollars(total.cost)), " spent"),
  h("span", null, h("b", null, dollars(total.saved)), " saved",
    total.plain ? ` (${percent(total.saved / total.plain)})` : ""),
  h("span", null, h("b", null, many(total.tokens_raw)), " tokens in, ",
    h("b", null, many(total.tokens_forwarded)), " forwarded"));

const wordOf = (name, by) => name || (NAMELESS[by] ?? "(none)");

const legend = (told, at, { lined }) => h("p", { class: "legend statuses" },
  told.shown.map((name, place) => h("span", null, h("i", { class: `key g${place}` }), wordOf(name, at.by))),
  lined ? h("span", null, h("i", { class: "key would" }), lined) : null,
  h("span", null, `each bar is ${lasting(told.every)}`));

function rows(told, at, { of, line, written }) {
  const groups = new Map(told.places.map((each) => [each, new Map()]));
  for (const each of told.moments) groups.get(each.at)?.set(each.group, each);
  return told.places.map((moment) => {
    const found = groups.get(moment);
    const parts = told.shown.map((name, place) => [`g${place}`, found.has(name) ? of(found.get(name)) : 0]);
    const words = told.shown.filter((name) => found.has(name))
      .map((name) => `${wordOf(name, at.by)}: ${written(of(found.get(name)))}`);
    const lined = line && found.size ? [...found.values()].reduce((sum, each) => sum + line(each), 0) : undefined;
    if (lined !== undefined) words.push(`${MEASURES[at.of].lined}: ${written(lined)}`);
    return { ...axis(moment, told.every, at.hours * 3600, words.join("\n") || "nothing"), parts, line: lined };
  });
}

const HEAD = [
  "Requests", "Tokens in", "Forwarded", "Less, net", "Cached", "Cached as sent", "Cached with marks or key", "Rewrites",
  "Fetched again", "Spent", "Spent on summaries", "Without proxy", "Saved", "Would save",
];

const shareOf = (share) => (share === null ? "–" : percent(share));

function groups(told, at) {
  const head = [at.by[0].toUpperCase() + at.by.slice(1), ...HEAD.map(figure)];
  const cells = (each) => [
    exact(each.requests), many(each.tokens_raw), many(each.tokens_forwarded),
    less(each.tokens_unshortened, each.tokens_forwarded), shareOf(each.cached_share), shareOf(each.cached_share_as_sent),
    shareOf(each.cached_share_placed), exact(each.blocks), exact(each.refetches),
    spent(each), each.spent ? cents(each.spent) : "–", plain(each),
    [saved(each), each.plain ? h("small", null, percent(each.saved / each.plain)) : null], wouldSave(each),
  ].map(figure);
  const first = ({ name }, place) => h("span", { class: "word" },
    h("i", { class: `key g${Math.min(place, told.shown.length - 1)}` }), toGroup(name, at));
  const others = told.others ? [[`${exact(told.others.groups)} others`, ...cells(told.others)]] : [];
  const all = told.groups.length > 1 ? [[h("b", null, "All"), ...cells(told.total)]] : [];
  return table(head, [...told.groups.map((each, place) => [first(each, place), ...cells(each)]), ...others, ...all],
    "Usage in figures", true);
}

function toGroup(name, { by }) {
  const words = wordOf(name, by);
  if (by === "policy") return toPolicy(name, words);
  if (!name || !(by in FILTER_OF)) return words;
  return h("a", { href: `#/conversations?${new URLSearchParams({ [FILTER_OF[by]]: name })}` }, words);
}
