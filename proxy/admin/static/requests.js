// All requests: their number, speed and failures; a list that can follow new ones; and one request with its figures.

import { get } from "./api.js";
import { lines, stacks } from "./charts.js";
import { choice, goTo, options, SPANS, tile } from "./controls.js";
import { badge, empty, figure, h, named, note, part, show, table } from "./dom.js";
import { attempted } from "./faults.js";
import { axis, bytes, dollars, exact, lasting, many, moment, percent, seconds } from "./format.js";
import { toPolicy, toRequest } from "./links.js";
import { ACTIONS, meanings, reason } from "./words.js";

const FILTERS = ["team", "model", "upstream", "kind", "text", "slower", "conversation"];
const KINDS = {
  all: "all requests", errors: "all errors", "upstream-errors": "errors of the upstream", failed: "upstream failed",
  refused: "refused by the proxy", "client-left": "client left", compacted: "compacted", ok: "without errors",
};
const OUTCOMES = [
  ["ok", "good", "answered"], ["upstream-errors", "warn", "error of the upstream"],
  ["refused", "refused", "refused by the proxy"], ["failed", "loss", "upstream failed"],
  ["client-left", "raw", "client left"],
];
const TAIL_MILLISECONDS = 2000;
const PAGE_ROWS = 30;
const ROWS_MAX = 500;
const REST_RATIO = 20;  // figures of many requests take a second to compute: they are read again after twenty

export async function requests(place, _, query) {
  const wanted = Object.fromEntries(FILTERS.map((name) => [name, query.get(name) ?? ""]));
  wanted.hours = Number(query.get("hours")) || 24;
  const asked = { ...wanted, kind: wanted.kind || "all" };
  const figures = h("div"), list = h("div");
  let traffic = await get("/traffic", asked);
  let { requests: rows, next } = await get("/requests", { ...asked, limit: PAGE_ROWS });
  const older = () => attempted(list, async () => {
    const told = await get("/requests", { ...asked, limit: PAGE_ROWS, before: next });
    ({ next } = told);
    rows = [...rows, ...told.requests];
    return drawn();
  });
  const drawn = () => (rows.length
    ? [listed(rows), next === null || rows.length >= ROWS_MAX ? null
      : h("button", { class: "more", onclick: older }, "Older ones")]
    : nothing(asked));
  const tail = h("input", { type: "checkbox", checked: true });
  const follow = async () => {
    if (!tail.checked || list.contains(document.activeElement)) return;
    const newest = rows[0]?.id ?? 0;
    const { requests: added } = await get("/requests", { ...asked, after: newest, limit: 200 });
    if (!added.length || !list.isConnected) return;
    rows = [...added, ...rows].slice(0, ROWS_MAX);
    show(list, drawn());
  };
  show(place,
    h("div", { class: "row-head" }, h("h1", null, "Requests"),
      options("Span", SPANS, wanted.hours, (hours) => to({ ...wanted, hours }))),
    filters(wanted, traffic),
    figures,
    h("section", null,
      h("div", { class: "row-head" }, h("h2", null, "List"),
        h("label", { class: "check" }, tail, "follow new ones")),
      list));
  show(figures, pictures(traffic, asked));
  show(list, drawn());
  const timer = setInterval(() => {
    if (!place.isConnected) return clearInterval(timer);
    if (document.visibilityState === "visible") follow().catch(() => null);  // faults are shown when the figures are read again
  }, TAIL_MILLISECONDS);
  let due = 0;
  return async () => {
    const begun = Date.now();
    if (begun < due) return;
    traffic = await get("/traffic", asked);
    show(figures, pictures(traffic, asked));
    due = Date.now() + REST_RATIO * (Date.now() - begun);
  };
}

function to(wanted) {
  const said = Object.entries(wanted).filter(([, value]) => value);
  return `#/requests?${new URLSearchParams(said)}`;
}

function filters(wanted, { teams, models, upstreams }) {
  const change = (event) => {
    event.preventDefault();
    goTo("/requests", event.currentTarget.form ?? event.currentTarget, { hours: wanted.hours });
  };
  const kinds = h("select", { name: "kind", "aria-label": "kind", onchange: change },
    Object.entries(KINDS).map(([kind, words]) =>
      h("option", { value: kind === "all" ? "" : kind, selected: kind === (wanted.kind || "all") }, words)));
  const slow = h("select", { name: "slower", "aria-label": "duration", onchange: change },
    [["", "any duration"], ["1", "over 1 s"], ["10", "over 10 s"], ["60", "over 1 min"]].map(([value, words]) =>
      h("option", { value, selected: value === wanted.slower }, words)));
  return h("form", { class: "filters", onsubmit: change }, kinds,
    teams.length ? choice("team", "All teams", teams, wanted.team, change) : null,
    models.length ? choice("model", "All models", models, wanted.model, change) : null,
    upstreams.length > 1 ? choice("upstream", "All upstreams", upstreams, wanted.upstream, change) : null,
    slow,
    h("input", {
      type: "search", name: "text", value: wanted.text, placeholder: "request id, conversation, path …",
      "aria-label": "Filter by a name",
    }),
    wanted.conversation ? h("input", { type: "hidden", name: "conversation", value: wanted.conversation }) : null,
    h("button", null, "Filter"),
    FILTERS.some((name) => wanted[name])
      ? h("a", { href: `#/requests?hours=${wanted.hours}` }, "Clear") : null);
}

function pictures({ total, moments, every }, { hours }) {
  if (!total.requests) return null;
  const span = hours * 3600;
  const since = total.oldest ? Math.max(60, Date.now() / 1000 - total.oldest) : span;
  const failed = total.refused + total["upstream-errors"] + total.failed;
  const bar = (each) => ({
    ...axis(each.at, every, span, OUTCOMES.filter(([name]) => each[name])
      .map(([name, , words]) => `${exact(each[name])} ${words}`).join("\n") || "none"),
    parts: OUTCOMES.map(([name, kind]) => [kind, each[name] / every * 60]),
  });
  const dot = (each) => ({
    ...axis(each.at, every, span, each.p50 === undefined ? "no requests"
      : `p50 ${seconds(each.p50)}, p95 ${seconds(each.p95)}\n`
        + `first byte: ${seconds(each.first_p50)}, ${seconds(each.first_p95)}`),
    values: [each.p95, each.p50, each.first_p50],
  });
  return [
    h("section", { class: "tiles", "aria-label": "Totals" },
      tile("Requests", exact(total.requests), `${rate(total.requests / Math.min(span, since))} on average`),
      tile("Errors", total.requests ? percent(failed / total.requests, 1) : "–",
        `${exact(total["upstream-errors"])} of upstreams, ${exact(total.failed)} failed, ${exact(total.refused)} refused`),
      tile("Duration", seconds(total.p50), `p50; p95 ${seconds(total.p95)}, p99 ${seconds(total.p99)}`),
      tile("Added by the proxy", seconds(total.overhead_p95), "p95, before the first byte")),
    h("div", { class: "halves" },
      h("section", null, h("h2", null, "Requests per minute"),
        h("p", { class: "legend statuses" }, OUTCOMES.map(([, kind, words]) =>
          h("span", null, h("i", { class: `key ${kind}` }), words)), h("span", null, `each bar is ${lasting(every)}`)),
        stacks(moments.map(bar), { height: 170, told: "Requests per minute, by outcome", written: many, half: true })),
      h("section", null, h("h2", null, "Duration"),
        h("p", { class: "legend statuses" }, [["g3", "p95"], ["g0", "p50"], ["g2", "p50 of the first byte"]]
          .map(([kind, words]) => h("span", null, h("i", { class: `key ${kind}` }), words))),
        lines(moments.map(dot), {
          height: 170, kinds: ["g3", "g0", "g2"], told: "Duration of requests", written: seconds,
        }))),
  ];
}

const rate = (perSecond) => (perSecond >= 1
  ? `${perSecond.toFixed(1)} a second` : perSecond * 60 >= 1
    ? `${(perSecond * 60).toFixed(1)} a minute` : `${(perSecond * 3600).toFixed(1)} an hour`);

const HEAD = ["Time", "Request", "Status", "Team, model", "Tokens: in → forwarded", figure("Duration"), figure("Bytes out")];

const listed = (rows) => table(HEAD, rows.map((each) => [
  h("span", { class: "when" }, moment(each.at)),
  h("span", { class: "line" }, toRequest(each.request_id, `${each.method} ${each.route}`),
    h("small", null, each.request_id)),
  status(each),
  h("span", { class: "word" }, [each.team, each.model].filter(Boolean).join(", ") || "–",
    h("small", null, each.upstream ?? "")),
  tokens(each),
  figure(seconds(each.seconds)),
  figure(bytes(each.bytes_out)),
]), "Requests", "compact");

function status(each) {
  const words = each.outcome === "completed" ? String(each.status || "–") : `${each.status || "–"} ${each.outcome}`;
  const bad = each.outcome === "failed" || each.outcome === "upstream-broke" || each.status >= 500;
  const kind = bad ? "error" : each.status >= 400 || each.outcome !== "completed" ? "warning" : "";
  return h("span", null, badge(words, kind), " ",
    ["applied", "created", "observed", "failed-open"].includes(each.compaction)
      ? badge(each.compaction, each.compaction) : null);
}

const tokens = (each) => (each.tokens_raw
  ? h("span", { class: "when" }, each.tokens_raw === each.tokens_forwarded ? many(each.tokens_raw)
    : `${many(each.tokens_raw)} → ${many(each.tokens_forwarded)}`) : "–");

function nothing(asked) {
  const span = SPANS.find(([hours]) => hours === asked.hours)?.[1] ?? `${asked.hours} h`;
  const isFiltered = FILTERS.some((name) => asked[name] && asked[name] !== "all");
  return empty("No requests", isFiltered
    ? h("p", null, `No request of the last ${span} fits this filter. `, h("a", { href: "#/requests" }, "Show all"))
    : h("p", null, `There were no requests in the last ${span}. New ones appear here by themselves.`));
}

export async function request(place, [id]) {
  const told = await get(`/requests/${encodeURIComponent(id)}`);
  const { turn } = told;
  const inConversation = told.conversation
    ? h("a", { href: `#/conversations/${encodeURIComponent(told.conversation)}${turn ? `?at=${turn.link}` : ""}` },
      h("code", null, told.conversation))
    : "none: too short to be looked at, or not compacted";
  show(place,
    h("p", { class: "crumbs" }, h("a", { href: "#/requests" }, "Requests"), " / ", h("code", null, told.request_id)),
    h("h1", null, `${told.method} ${told.route} `, status(told)),
    part("Request", named([
      ["When", moment(told.at)],
      ["Duration", seconds(told.seconds)],
      ["To the first byte", seconds(told.first_byte_seconds)],
      ["Added by the proxy", seconds(told.overhead_seconds)],
      ["Outcome", told.reason ? `${told.outcome}: ${reason(told.reason)}` : told.outcome],
      ["Team", told.team || "none"],
      ["Model", told.model || "not read"],
      ["Upstream", told.upstream ?? "none asked"],
      ["Bytes", `${bytes(told.bytes_in)} in, ${bytes(told.bytes_out)} out`],
    ])),
    part("Compaction", named([
      ["What was done", [badge(told.compaction ?? "none", told.compaction), " ", ACTIONS[told.compaction] ?? ""]],
      ["Conversation", inConversation],
      told.tokens_raw ? ["Tokens", `${exact(told.tokens_raw)} in, ${exact(told.tokens_forwarded)} forwarded`] : null,
      turn ? ["Policy", toPolicy(turn.policy.split("@")[0], h("code", null, turn.policy))] : null,
      turn ? ["Usage", turn.tokens_read ? `read ${exact(turn.tokens_read)}, ${exact(turn.tokens_cached ?? 0)} of it `
        + `cached; wrote ${exact(turn.tokens_written)}` : "not reported by the upstream"] : null,
      turn ? ["Cost of the prompt", turn.paid === null ? "not known" : `${dollars(turn.paid)}, saved ${dollars(turn.saved)}`]
        : null,
      turn?.key ? ["Key", h("code", null, turn.key)] : null,
      turn?.user ? ["User", turn.user] : null,
      turn?.session ? ["Session", turn.session] : null,
      turn?.tag ? ["Tag", turn.tag] : null,
    ])),
    meanings("Added by the proxy", "Tokens in", "Forwarded", "Cost of the prompt", "Saved"),
    turn ? note(h("a", { href: `/admin/api/requests/${encodeURIComponent(id)}/forwarded` }, "Its messages as forwarded, as JSON")) : null,
    note("The same id is in the header x-compaction-request-id of the response and in the log."));
}
