// One conversation: the size of each request, and the status of each message of the chosen request. A request is chosen
// in the picture or by the slider.

import { get, post } from "./api.js";
import { bars } from "./charts.js";
import { confirming } from "./controls.js";
import { badge, empty, h, named, note, part, show, table } from "./dom.js";
import { complaint } from "./faults.js";
import { counted, dollars, exact, less, many, moment, percent } from "./format.js";
import { toPolicy } from "./links.js";
import { said, strip } from "./strip.js";
import { account, ACTIONS, event, lessNet, meanings, STATUSES, reason } from "./words.js";

const MOST_BARS = 120;
const HAPPENED_ROWS = 8;
const SESSIONS_MAX = 20;

// `at`: the link of a request; `message`: the link of a message to open. If both are missing, the newest is shown.
export async function conversation(place, [name], query) {
  const path = `/conversations/${encodeURIComponent(name)}`;
  const session = query.get("session");
  let at = query.get("at");
  let told = await get(path, { at, session });
  // Put the session, the request and the open message into the address.
  const note = (message) => {
    const said = Object.entries({ session, at, message }).filter(([, value]) => value);
    history.replaceState(null, "", `#${path}${said.length ? `?${new URLSearchParams(said)}` : ""}`);
  };
  const drawn = (message) => page(told, at, { path, choose, note, session, message });
  const choose = async (number) => {
    const sliding = document.activeElement?.type === "range";
    at = told.turns[number].link;
    note();
    try {
      told = await get(path, { at, session });
      show(place, drawn());
      if (sliding) place.querySelector("input[type=range]").focus();
    } catch (fault) {
      place.prepend(complaint(fault));
    }
  };
  show(place, drawn(query.get("message")));
  place.querySelector("[aria-pressed=true]")?.scrollIntoView({ block: "center" });
  return async () => {
    const reading = place.querySelector("[aria-pressed=true], details[open]") || place.contains(document.activeElement);
    if (at || !told.open || reading) return;
    told = await get(path, { session });
    show(place, drawn());
  };
}

function page(told, at, { path, choose, note, session, message }) {
  const asked = told.turns.findLastIndex((turn) => turn.link === at);
  const chosen = asked >= 0 ? asked : told.turns.length - 1;
  return [
    h("p", { class: "crumbs" },
      h("a", { href: "#/conversations" }, "Conversations"), " / ", h("code", null, told.conversation)),
    h("h1", null, told.title || told.conversation),
    h("p", { class: "acts" }, h("a", { href: `#/requests?conversation=${encodeURIComponent(told.conversation)}&hours=744` },
      "Its requests in the list"), deleting(told.conversation)),
    facts(told),
    sessions(told, path, session),
    requests(told, chosen, choose),
    turn(told.turns[chosen]),
    meanings("Tokens in", "Forwarded", "Less, net", "Cached", "Fetched again", "Spent", "Saved", "Would save"),
    part("Messages", messages(told, told.turns[chosen], { path, note, wanted: message })),
    told.summary ? part("The summary that is forwarded", origin(told, told.turns[chosen]), said(told.summary)) : null,
    part("Rewrites and summaries", happened(told.happened)),
    told.head.length ? h("details", null,
      h("summary", null, "Instructions (always forwarded unchanged)"), told.head.map(said)) : null,
  ];
}

function deleting(conversation) {
  const question = "Originals, summaries and activity, on every machine, for good? ";
  return confirming("Delete", { label: "Delete this conversation", question }, async () => {
    await post("/deletions", { conversation });
    return "deleted on every machine within seconds";
  });
}

function facts(told) {
  const sum = (of) => told.turns.reduce((total, each) => total + (of(each) ?? 0), 0);
  const raw = sum((each) => each.tokens_raw), sent = sum((each) => each.tokens_forwarded);
  const net = sum((each) => each.tokens_unshortened);
  const would = sum((each) => each.tokens_would_be), refetches = sum((each) => each.refetches);
  const priced = told.turns.some((each) => each.saved !== null);
  const fact = (words, bold, ...rest) => h("span", null, words, h("b", null, bold), rest);
  return h("p", { class: "facts" },
    told.open ? badge("live", "live") : null,
    told.team ? fact("team ", told.team) : null,
    told.user ? fact("user ", told.user) : null,
    told.key ? fact("key ", told.key) : null,
    fact("model ", told.model),
    fact("", exact(told.turns.length), told.turns.length === 1 ? " request" : " requests"),
    fact(`${many(raw)} tokens sent, `, many(sent),
      ` forwarded (${lessNet({ tokens_raw: raw, tokens_unshortened: net, tokens_forwarded: sent })})`),
    refetches ? fact("", counted(refetches, "result"), " fetched again") : null,
    would < sent ? fact("would be ", many(would), ` (${less(raw, would)} less)`,
      priced ? `, ${dollars(sum((each) => each.would_save))} saved` : null) : null,
    priced ? fact("", dollars(sum((each) => each.saved) - told.spent), " saved") : null,
    priced ? fact("", dollars(sum((each) => each.paid) + told.spent), " spent",
      told.spent ? `, of it ${dollars(told.spent)} for summaries` : null) : null,
    h("span", null, moment(told.first), " – ", moment(told.last)));
}

// Agents that begin alike may share a conversation. If clients name their sessions, each can be shown alone.
function sessions({ sessions: all }, path, chosen) {
  if (all.length < 2 && chosen === null) return null;
  const name = (each) => [each.session || "not named", each.user].filter(Boolean).join(", ");
  const link = (each) => h("a", {
    href: `#${path}?${new URLSearchParams({ session: each.session })}`, "aria-current": each.session === chosen && "true",
  }, `${name(each)} (${counted(each.requests, "request")})`);
  return h("div", { class: "controls" }, h("span", { class: "dim" }, "Session"),
    h("nav", { class: "spans", "aria-label": "Session" },
      h("a", { href: `#${path}`, "aria-current": chosen === null && "true" }, "all"),
      all.filter((each) => each.session).slice(0, SESSIONS_MAX).map(link)));
}

function requests(told, chosen, choose) {
  const first = Math.max(0, Math.min(chosen - MOST_BARS / 2, told.turns.length - MOST_BARS));
  const number = (place) => first + place + 1;
  const row = (each, place) => ({
    values: [
      ["raw", each.tokens_raw], ["sent", each.tokens_forwarded],
      ["cached", Math.min(each.tokens_cached ?? 0, each.tokens_forwarded)],
    ],
    would: observes(each) ? each.tokens_would_be : undefined,
    mark: each.action === "created",
    label: `Request ${number(place)}: ${many(each.tokens_raw)} tokens sent, ${many(each.tokens_forwarded)} forwarded`
      + (observes(each) ? `, would be ${many(each.tokens_would_be)}; ` : "; ") + (ACTIONS[each.action] ?? each.action),
    tick: number(place) % 10 === 0 ? String(number(place)) : null,
  });
  const slider = h("input", {
    type: "range", min: 1, max: told.turns.length, value: chosen + 1, "aria-label": "Request",
    onchange: ({ target }) => choose(Number(target.value) - 1),
  });
  return part("Requests",
    h("p", { class: "legend" }, key("raw"), "as sent ", key("sent"), "as forwarded ", key("cached"), "of it cached ",
      key("made"), "the history was shortened",
      told.turns.some(observes) ? [" ", key("would"), "as it would have been forwarded"] : null),
    bars(told.turns.slice(first, first + MOST_BARS).map(row), {
      height: 190, told: "Tokens of each request", written: many,
      chosen: chosen - first, choose: (place) => choose(first + place),
    }),
    told.turns.length > 1 ? h("label", { class: "slider" }, slider,
      h("output", null, `request ${chosen + 1} of ${told.turns.length}`)) : null);
}

const observes = (each) => each.tokens_would_be < each.tokens_forwarded;

function turn(each) {
  const cached = each.tokens_cached === null ? "" : `, ${percent(each.tokens_cached / each.tokens_read)} of it cached`;
  const usage = `read ${exact(each.tokens_read)}${cached}, wrote ${exact(each.tokens_written)}`;
  const done = ` ${ACTIONS[each.action] ?? ""}${each.reason ? `: ${reason(each.reason)}` : ""}`;
  const rows = [
    ["What was done", [badge(each.action, each.action), done]],
    ["Policy", toPolicy(each.policy.split("@")[0], h("code", null, each.policy))],
    ["Tokens", `${exact(each.tokens_raw)} in, ${exact(each.tokens_forwarded)} forwarded`
      + (observes(each) ? `, would be ${exact(each.tokens_would_be)}` : "")],
    each.refetches ? ["Fetched again", `${counted(each.refetches, "result")} that had been shortened`] : null,
    ["Upstream", each.tokens_read ? usage : "reported no usage"],
    ["Prompt", each.paid === null ? "price not known" : `${dollars(each.paid)}, saved ${dollars(each.saved)}`
      + (observes(each) ? `, would save ${dollars(each.would_save)}` : "")],
    ["When", moment(each.at)],
  ];
  return named(rows, "turn asked");
}

function messages(told, asked, { path, note: remember, wanted }) {
  if (!told.pieces.length) {
    return empty("No messages to show", h("p", null, told.why_no_pieces || "This history holds no messages."));
  }
  const counts = Object.groupBy(told.pieces, (each) => each.status);
  const status = (name) => h("span", null, key(name),
    `${counts[name].length} ${STATUSES[name]}${name === "cleared" ? `: ${steps(counts[name])}` : ""} `);
  const found = told.pieces.findIndex((each) => each.link === wanted);
  return [
    note("Each message is as wide as it was long, and filled as far as it is still forwarded; a dot marks the ",
      "user's. Open one to see the original next to the forwarded text."),
    h("p", { class: "legend statuses" }, Object.keys(STATUSES).filter((name) => counts[name]).map(status)),
    note(standing(told.block, asked)),
    wanted && found < 0
      ? note("The text that was searched for is in another branch of this conversation, or in its instructions.") : null,
    strip(told.pieces, { covers: told.block?.covers ?? 0, path, at: told.at, opened: found < 0 ? undefined : found,
      onOpen: (piece) => remember(piece.link) }),
  ];
}

function steps(pieces) {
  const counts = Object.groupBy(pieces, (each) => each.step);
  return Object.entries(counts).map(([step, all]) => `${step} ${all.length}`).join(", ");
}

const key = (kind) => h("i", { class: `key ${kind}` });

function standing(block, asked) {
  if (!block) {
    return asked.tokens_forwarded < asked.tokens_raw
      ? "The shortened form of this request is no longer stored: the messages are shown as sent."
      : "Nothing was shortened: all messages were forwarded as sent.";
  }
  const start = block.observed ? "Observed only, not forwarded: the" : "The";
  return [`${start} first ${block.covers} messages are shortened, by `, h("code", null, block.policy),
    `: ${reason(block.reason)}.`];
}

// The call that made the summary: the last successful one before the request.
function origin(told, asked) {
  const isOne = ({ name, details, at }) => name === "summary-ended" && details.outcome === "made" && at <= asked.at;
  const made = told.happened.findLast(isOne);
  const why = told.block ? `It was made because ${reason(told.block.reason)}. ` : "";
  return note(why, made ? [`On ${moment(made.at)} `, account(made)] : "The activity log no longer holds who made it.");
}

function happened(events) {
  const rows = events.map((each) => [moment(each.at), badge(event(each.name), each.severity), account(each)]);
  const head = ["When", "What", "Why, and what it did"];
  if (!rows.length) return note("None so far.");
  const newest = rows.slice(-HAPPENED_ROWS);
  const place = h("div", null, table(head, newest, "Rewrites and summaries", true));
  if (newest.length < rows.length) {
    const all = () => show(place, table(head, rows, "Rewrites and summaries", true));
    place.prepend(h("button", { class: "more", onclick: all }, `All ${rows.length}`));
  }
  return place;
}
