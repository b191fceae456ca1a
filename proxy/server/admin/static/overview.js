// How it goes: four figures, two pictures, and the table behind them.

import { get } from "./api.js";
import { bars } from "./charts.js";
import { empty, figure, h, show, table } from "./dom.js";
import { ago, clock, dollars, exact, lasting, less, many, percent } from "./format.js";

const SPANS = [[1, "1 h"], [6, "6 h"], [24, "24 h"], [168, "7 d"], [744, "31 d"]];
const TICKS = 6;

export async function overview(place, _, query) {
  let hours = Number(query.get("hours")) || 24;
  const young = await get("/overview", { hours: 1 });
  if (!query.get("hours") && young.hour.requests === young.all.requests) hours = 1;  // so that there is something to see
  const draw = async () => {
    const [told, { events }] = await Promise.all([get("/overview", { hours }), get("/events", { limit: 5 })]);
    const focused = document.activeElement?.getAttribute("href");
    show(place, told.all.requests ? picture(told, hours, events) : welcome());
    if (focused && place.querySelector(`.spans a[href="${CSS.escape(focused)}"]`)) place.querySelector(`.spans a[href="${CSS.escape(focused)}"]`).focus();
  };
  await draw();
  return draw;
}

const welcome = () => empty("Nothing has come by yet",
  h("p", null, "Point an agent at this proxy and change nothing else:"),
  h("pre", null, `export OPENAI_BASE_URL=${location.origin}/v1`),
  h("p", null, "Requests appear here within a second. Conversations appear once they are long enough to be looked at."));

const picture = (told, hours, events) => [
  h("h1", null, "Overview"),
  h("section", { class: "tiles", "aria-label": "The last 24 hours" },
    tile("Saved in 24 h", told.day.priced ? dollars(told.day.saved) : "–",
      told.day.priced ? `${dollars(told.day.plain)} without, ${dollars(told.day.paid)} paid${told.day.spent ? `, ${dollars(told.day.spent)} for summaries` : ""}` : "prices or usage are not known"),
    tile("Kept from being sent", less(told.day.tokens_raw, told.day.tokens_forwarded), `${many(told.day.tokens_raw)} tokens came, ${many(told.day.tokens_forwarded)} went on`),
    tile("Read from the cache", told.day.cached_share === null ? "–" : percent(told.day.cached_share), "by the upstreams' own usage"),
    tile("Open conversations", exact(told.open), `${exact(told.day.requests)} requests in 24 h`)),
  h("section", null,
    h("div", { class: "row-head" }, h("h2", null, "Tokens"), spans(hours)),
    h("p", { class: "legend" }, h("i", { class: "key raw" }), "as clients sent them ", h("i", { class: "key sent" }), `as forwarded; each bar is ${lasting(told.every)}`),
    bars(rows(told, hours, (each) => [["raw", each.tokens_raw], ["sent", each.tokens_forwarded]],
      (each) => `${many(each.tokens_raw)} tokens came, ${many(each.tokens_forwarded)} went on, ${exact(each.requests)} requests`),
      { told: "Tokens as sent and as forwarded, over time", written: many })),
  told.all.priced ? h("section", null,
    h("h2", null, "Money saved"),
    h("p", { class: "legend" }, "What the same histories would have cost, less what was paid and what summaries cost."),
    bars(rows(told, hours, (each) => [[each.saved < 0 ? "loss" : "gain", each.saved]], (each) => dollars(each.saved)),
      { height: 130, told: "Money saved, over time", written: dollars })) : null,
  h("section", null, h("h2", null, "In figures"), figures(told)),
  Object.keys(told.teams).length ? h("section", null, h("h2", null, "By team, 24 h"), teamsTable(told.teams)) : null,
  h("section", null, h("h2", null, "Latest warnings"), warnings(events)),
];

const tile = (name, value, note) =>
  h("div", { class: "tile" }, h("h3", null, name), h("p", { class: "value" }, value), h("p", { class: "note" }, note));

const spans = (hours) => h("nav", { class: "spans", "aria-label": "Span" },
  SPANS.map(([each, name]) => h("a", { href: `#/?hours=${each}`, "aria-current": each === hours && "true" }, name)));

function rows(told, hours, values, label) {
  const every = Math.max(1, Math.ceil(told.moments.length / TICKS));
  return told.moments.map((each, place) => ({
    values: values(each),
    label: `${clock(each.at, 0)}: ${label(each)}`,
    tick: place % every === 0 ? clock(each.at, hours * 3600) : null,
  }));
}

const COLUMNS = [
  ["Requests", (p) => exact(p.requests)],
  ["Failed", (p) => exact(p.failed)],
  ["Looked at", (p) => exact(p.looked_at)],
  ["Tokens in", (p) => many(p.tokens_raw)],
  ["Forwarded", (p) => many(p.tokens_forwarded)],
  ["Cached", (p) => (p.cached_share === null ? "–" : percent(p.cached_share))],
  ["Blocks", (p) => exact(p.blocks)],
  ["Summaries", (p) => exact(p.summaries)],
  ["Saved", (p) => (p.priced ? dollars(p.saved) : "–")],
  ["Too long", (p) => (p.overflows ? `${p.overflows_helped} of ${p.overflows} helped` : "0")],
  ["Breakers", (p) => exact(p.breakers)],
  ["Our faults", (p) => exact(p.faults)],
];
const SHORTER = COLUMNS.filter(([name]) => !["Summaries", "Too long", "Breakers", "Our faults"].includes(name));

const head = (first, columns) => [first, ...columns.map(([name]) => figure(name))];
const line = (name, period, columns) => [name, ...columns.map(([, of]) => figure(of(period)))];

const figures = (told) => table(head("", COLUMNS),
  [line("Last hour", told.hour, COLUMNS), line("Last 24 h", told.day, COLUMNS), line("31 days", told.all, COLUMNS)], "In figures");

const teamsTable = (teams) => table(head("Team", SHORTER),
  Object.entries(teams).map(([team, period]) => line(h("a", { href: `#/conversations?team=${encodeURIComponent(team)}` }, team), period, SHORTER)), "By team");

const warnings = (events) => events.length
  ? h("ul", { class: "events" }, events.map((each) => h("li", { class: each.severity },
    h("b", null, each.name), ` ${ago(each.at)} `, each.details.why ?? each.details.effect ?? each.details.kind ?? "")))
  : h("p", { class: "good" }, "None. Warnings and errors of all machines appear here.");
