// The overview: four figures, two charts, and a table.

import { get } from "./api.js";
import { bars, meter } from "./charts.js";
import { empty, figure, h, note, part, table } from "./dom.js";
import { ago, axis, cents, dollars, exact, lasting, less, many, percent } from "./format.js";
import { ofReplicas, options, redrawn, SPANS, tile } from "./controls.js";
import { toConversation } from "./links.js";
import { account, event, meanings } from "./words.js";

export async function overview(place, _, query) {
  let hours = Number(query.get("hours")) || 24;
  const young = await get("/overview", { hours: 1 });
  const isYoung = young.hour.requests === young.all.requests;
  if (!query.get("hours") && isYoung) hours = 1;  // so that there is something to see
  return redrawn(place, async () => {
    const [told, { events }, { switches }] = await Promise.all([
      get("/overview", { hours }), get("/events", { limit: 5 }), get("/switches")]);
    const limited = new Set(switches.map(({ team, state }) => `${team || "everybody"} ${state}`));
    for (const each of events) {
      each.lifted = each.name === "switch-set" && !limited.has(`${each.details.team} ${each.details.state}`);
    }
    return told.all.requests ? picture(told, hours, events) : welcome();
  });
}

const welcome = () => empty("No requests yet",
  h("p", null, "Set this for an agent; nothing else needs to change:"),
  h("pre", null, `export OPENAI_BASE_URL=${location.origin}/v1`),
  h("p", null, "Requests appear here within a second. Conversations appear once they are long enough to be looked ",
    "at."));

const picture = (told, hours, events) => [
  h("h1", null, "Overview"),
  tiles(told),
  h("section", null,
    h("div", { class: "row-head" }, h("h2", null, "Tokens"), spans(hours)),
    h("p", { class: "legend" }, h("i", { class: "key raw" }), "as clients sent them ",
      h("i", { class: "key sent" }), `as forwarded; each bar is ${lasting(told.every)}`,
      observes(told.all) ? [" ", h("i", { class: "key would" }), "as forwarded if nothing were only observed"]
        : null),
    bars(rows(told, hours, (each) => [["raw", each.tokens_raw], ["sent", each.tokens_forwarded]],
      (each) => `${tokens(each)}, ${exact(each.requests)} requests`,
      (each) => (observes(each) ? each.tokens_would_be : undefined)),
      { told: "Tokens as sent and as forwarded, over time", written: many })),
  told.all.priced ? part("Money saved",
    note("Cost of the same work without the proxy, less what prompts and summaries did cost. Steps in which an agent ",
      "fetched again what had been shortened count as a loss."),
    bars(rows(told, hours, (each) => [[each.saved < 0 ? "loss" : "gain", each.saved]], (each) => dollars(each.saved)),
      { height: 130, told: "Money saved, over time", written: dollars })) : null,
  part("Latest warnings", warnings(events)),
  part("In figures", figures(told), ofReplicas(told), meanings(...MEANT)),
  h("p", null, h("a", { href: "#/usage?by=team" }, "By team, model, policy or key")),
];

const observes = (each) => each.tokens_would_be < each.tokens_forwarded;
const tokens = (each) => `${many(each.tokens_raw)} tokens in`
  + (each.tokens_unshortened < each.tokens_raw ? ` (${many(each.tokens_unshortened)} net of what was fetched again)` : "")
  + `, ${many(each.tokens_forwarded)} forwarded`
  + (observes(each) ? `, ${many(each.tokens_would_be)} if nothing were only observed` : "");

function tiles({ day, open, machines }) {
  const summaries = day.spent ? `, ${dollars(day.spent)} for summaries` : "";
  const money = `instead of ${dollars(day.plain)}: ${dollars(day.paid)} for prompts${summaries}`;
  const sent = day.tokens_raw ? day.tokens_forwarded / day.tokens_raw : 0;
  const cached = day.cached_share === null ? "–" : percent(day.cached_share);
  return h("section", { class: "tiles", "aria-label": "The last 24 hours" },
    day.priced
      ? tile("Saved in 24 h", dollars(day.saved), money)
      : tile("Saved in 24 h", "–", "prices or usage are not known"),
    tile("Tokens not sent", less(day.tokens_unshortened, day.tokens_forwarded), tokens(day),
      meter("Share that was forwarded", [["raw", 1], ["sent", sent]])),
    observes(day)
      ? tile("Not sent if nothing were only observed", less(day.tokens_raw, day.tokens_would_be),
        day.priced ? `${dollars(day.would_save)} more saved, before the cost of summaries` : tokens(day))
      : null,
    tile("Read from the cache", cached, "of what was forwarded, by the upstreams' own usage",
      meter("Share that was cached", [["sent", 1], ["cached", day.cached_share ?? 0]])),
    tile("Open conversations", exact(open),
      `${machines.length > 1 ? "at this replica; " : ""}${exact(day.requests)} requests in 24 h`));
}

const spans = (hours) => options("Span", SPANS, hours, (each) => `#/?hours=${each}`);

const rows = (told, hours, values, label, would) => told.moments.map((each) => ({
  values: values(each),
  would: would?.(each),
  ...axis(each.at, told.every, hours * 3600, label(each)),
}));

const COLUMNS = [
  ["Requests", (p) => exact(p.requests)],
  ["Failed", (p) => exact(p.failed)],
  ["Eligible", (p) => exact(p.looked_at)],
  ["Tokens in", (p) => many(p.tokens_raw)],
  ["Forwarded", (p) => many(p.tokens_forwarded)],
  ["Cached", (p) => (p.cached_share === null ? "–" : percent(p.cached_share))],
  ["Rewrites", (p) => exact(p.blocks)],
  ["Fetched again", (p) => exact(p.refetches)],
  ["Summaries", (p) => exact(p.summaries)],
  ["Spent", (p) => (p.priced ? cents(p.paid + p.spent) : "–")],
  ["Saved", (p) => (p.priced ? cents(p.saved) : "–")],
  ["Too long", (p) => (p.overflows ? `${p.overflows_helped} of ${p.overflows} helped${
    p.overflows_observed ? `, ${p.overflows_observed} only observed` : ""}` : "0")],
  ["Internal errors", (p) => exact(p.faults)],
];
const MEANT = [...COLUMNS.map(([name]) => name).filter((name) => name !== "Requests"), "Tokens not sent", "Without proxy"];

const head = (first, columns) => [first, ...columns.map(([name]) => figure(name))];
const line = (name, period, columns) => [name, ...columns.map(([, of]) => figure(of(period)))];

const figures = (told) => table(head("", COLUMNS), [
  line("Last hour", told.hour, COLUMNS), line("Last 24 h", told.day, COLUMNS), line("31 days", told.all, COLUMNS),
], "In figures", true);

const warnings = (events) => events.length
  ? [h("ul", { class: "events" }, events.map(warning)), h("p", null, h("a", { href: "#/events" }, "All of them"))]
  : h("p", { class: "good" }, "None. Warnings and errors appear here.");

const warning = (each) => h("li", { class: each.severity },
  h("b", null, event(each.name)), ` ${ago(each.at)}${each.lifted ? ", lifted since" : ""} `,
  each.machine ? `at ${each.machine}` : null,
  each.conversation ? toConversation(each.conversation, "in this conversation") : null,
  " ", account(each));
