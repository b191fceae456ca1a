// One conversation: what each request carried, and what became of each message. A request is chosen in the picture or
// by the slider; a message is a block whose filled part is what is still sent of it.

import { get } from "./api.js";
import { bars } from "./charts.js";
import { badge, empty, h, show, table } from "./dom.js";
import { bytes, dollars, exact, less, many, moment, percent } from "./format.js";

const FATES = {
  kept: "sent as it is",
  pinned: "kept, because it is pinned",
  cleared: "shortened by a step",
  folded: "told by a note",
  summarised: "told by a summary",
};
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
const NAMES = {
  "compaction-ended": "block",
  "compaction-rehearsed": "observed",
  "summary-ended": "summary",
  "breaker-opened": "breaker",
};
const MOST_BARS = 120;

export async function conversation(place, [name], query) {
  const path = `/conversations/${encodeURIComponent(name)}`;
  const told = await get(path, { at: query.get("at") });
  const asked = told.turns.findLastIndex((turn) => turn.link === query.get("at"));
  const chosen = asked >= 0 ? asked : told.turns.length - 1;
  const choose = (number) => { location.replace(`#${path}?at=${told.turns[number].link}`); };
  const pane = h("section", { class: "pane", "aria-live": "polite" });
  show(place,
    h("p", { class: "crumbs" }, h("a", { href: "#/conversations" }, "Conversations"), " / ", h("code", null, told.conversation)),
    h("h1", null, told.title || told.conversation),
    facts(told),
    requests(told, chosen, choose),
    turn(told, chosen),
    h("section", null, h("h2", null, "What became of each message"), messages(told, chosen, path, pane), pane),
    told.summary ? h("section", null, h("h2", null, "The summary that stands in it"), h("pre", { class: "said" }, told.summary)) : null,
    h("section", null, h("h2", null, "Blocks and summaries"), happened(told.happened)),
    told.head.length ? h("details", null, h("summary", null, "Instructions that led it (always forwarded as they are)"), told.head.map((each) => h("pre", { class: "said" }, each))) : null,
    told.forks.length ? h("details", null, h("summary", null, `${told.forks.length} other ends (rewinds and forks)`), h("ul", null, told.forks.map((each) => h("li", null, h("code", null, each.slice(0, 16)))))) : null);
}

function facts(told) {
  const sum = (of) => told.turns.reduce((total, each) => total + (of(each) ?? 0), 0);
  const raw = sum((each) => each.tokens_raw), sent = sum((each) => each.tokens_forwarded);
  const priced = told.turns.some((each) => each.saved !== null);
  return h("p", { class: "facts" },
    told.open ? badge("live", "live") : null,
    told.team ? h("span", null, "team ", h("b", null, told.team)) : null,
    h("span", null, "model ", h("b", null, told.model)),
    h("span", null, h("b", null, exact(told.turns.length)), " requests"),
    h("span", null, h("b", null, many(raw)), " tokens came, ", h("b", null, less(raw, sent)), " less went on"),
    priced ? h("span", null, h("b", null, dollars(sum((each) => each.saved))), " saved") : null,
    h("span", null, moment(told.first), " – ", moment(told.last)));
}

function requests(told, chosen, choose) {
  const first = Math.max(0, Math.min(chosen - MOST_BARS / 2, told.turns.length - MOST_BARS));
  const shown = told.turns.slice(first, first + MOST_BARS);
  const slider = h("input", {
    type: "range", min: 1, max: told.turns.length, value: chosen + 1, "aria-label": "Request",
    onchange: (event) => choose(Number(event.target.value) - 1),
  });
  return h("section", null,
    h("h2", null, "Requests"),
    h("p", { class: "legend" }, h("i", { class: "key raw" }), "as sent ", h("i", { class: "key sent" }), "as forwarded ",
      h("i", { class: "key cached" }), "of it cached ", h("i", { class: "key made" }), "a block was made"),
    bars(shown.map((each, place) => ({
      values: [["raw", each.tokens_raw], ["sent", each.tokens_forwarded], ["cached", Math.min(each.tokens_cached ?? 0, each.tokens_forwarded)]],
      mark: each.action === "created",
      label: `Request ${first + place + 1}: ${many(each.tokens_raw)} tokens came, ${many(each.tokens_forwarded)} went on; ${each.action} ${each.reason}`,
      tick: (first + place) % 10 === 9 ? String(first + place + 1) : null,
    })), { height: 190, told: "Tokens of each request", written: many, chosen: chosen - first, choose: (at) => choose(first + at) }),
    told.turns.length > 1 ? h("label", { class: "slider" }, slider, h("output", null, `request ${chosen + 1} of ${told.turns.length}`)) : null);
}

function turn(told, chosen) {
  const each = told.turns[chosen];
  const facts = [
    ["What was done", h("span", null, badge(each.action, each.action), each.reason && ` ${REASONS[each.reason] ?? each.reason}`)],
    ["Policy", h("a", { href: `#/policies/${encodeURIComponent(each.policy.split("@")[0])}` }, h("code", null, each.policy))],
    ["Tokens", `${exact(each.tokens_raw)} came, ${exact(each.tokens_forwarded)} went on`],
    ["Upstream", each.tokens_read ? `read ${exact(each.tokens_read)}${each.tokens_cached === null ? "" : `, ${percent(each.tokens_cached / each.tokens_read)} of it cached`}, wrote ${exact(each.tokens_written)}` : "did not tell its usage"],
    ["Saved", dollars(each.saved)],
    ["When", moment(each.at)],
  ];
  return h("dl", { class: "turn" }, facts.map(([name, value]) => h("div", null, h("dt", null, name), h("dd", null, value))));
}

function messages(told, chosen, path, pane) {
  if (!told.pieces.length) return empty("The messages are not here", h("p", null, told.why_no_pieces || "This conversation holds no messages."));
  const counts = told.pieces.reduce((all, each) => ({ ...all, [each.fate]: (all[each.fate] ?? 0) + 1 }), {});
  const standing = told.block;
  const applied = told.turns[chosen].action !== "none";
  return [
    h("p", { class: "legend fates" }, Object.entries(FATES).filter(([fate]) => counts[fate]).map(([fate, words]) =>
      h("span", null, h("i", { class: `key ${fate}` }), `${counts[fate]} ${words}${fate === "cleared" ? `: ${steps(told.pieces)}` : ""} `))),
    standing ? h("p", { class: "note" }, standing.rehearsed ? "Only observed, nothing of this was forwarded: " : "",
      `a block stands for the first ${standing.covers} messages, made by `, h("code", null, standing.policy), `: ${REASONS[standing.reason] ?? standing.reason}.`)
      : applied ? h("p", { class: "note" }, "The block that stood for this request is no longer kept: the messages are shown as they came.") : h("p", { class: "note" }, "Nothing stands for it: all messages went on as they came."),
    strip(told.pieces, standing?.covers ?? 0, path, told.at, pane),
  ];
}

function steps(pieces) {
  const counts = {};
  for (const each of pieces) if (each.fate === "cleared") counts[each.step] = (counts[each.step] ?? 0) + 1;
  return Object.entries(counts).map(([step, count]) => `${step} ${count}`).join(", ");
}

// One stop for the Tab key; arrows, Home and End go from message to message.
function strip(pieces, covers, path, at, pane) {
  const blocks = pieces.map((each) => block(each, () => open(each.place)));
  const open = async (number) => {
    blocks.forEach((each, place) => { each.tabIndex = place === number ? 0 : -1; each.setAttribute("aria-pressed", String(place === number)); });
    show(pane, beside(await get(`${path}/messages/${number}`, { at }), pieces[number]));
  };
  const step = (event) => {
    const here = blocks.indexOf(event.target.closest("button"));
    const next = { ArrowRight: here + 1, ArrowLeft: here - 1, Home: 0, End: blocks.length - 1 }[event.key];
    if (next === undefined || !blocks[next]) return;
    event.preventDefault();
    blocks[here].tabIndex = -1;
    blocks[next].tabIndex = 0;
    blocks[next].focus();
  };
  blocks[0].tabIndex = 0;
  const newest = blocks.slice(covers);
  return h("div", { class: "strip", role: "toolbar", "aria-label": "Messages, the oldest first; arrows move, Enter opens", onkeydown: step },
    blocks.slice(0, covers), covers && newest.length ? h("span", { class: "cut", title: "what is newer than the block" }) : null, newest);
}

function block(piece, open) {
  const share = piece.bytes ? Math.min(1, piece.bytes_sent / piece.bytes) : 1;
  const made = h("button", {
    type: "button", class: `block ${piece.fate} by-${piece.role.replace(/[^a-z]/g, "")}`, tabindex: -1, "aria-pressed": "false", onclick: open,
    title: `${piece.place + 1} ${piece.role} ${piece.tool}: ${FATES[piece.fate]}${piece.step ? ` (${piece.step})` : ""}, ${bytes(piece.bytes)} → ${bytes(piece.bytes_sent)}`,
    "aria-label": `Message ${piece.place + 1}, ${piece.role} ${piece.tool}, ${FATES[piece.fate]}, ${bytes(piece.bytes)}`,
  }, h("i"));
  made.style.setProperty("--wide", String(Math.max(1, Math.log2(1 + piece.bytes / 96))));
  made.style.setProperty("--full", String(share));
  return made;
}

function beside(opened, piece) {
  const words = `${FATES[opened.fate]}${opened.step && opened.fate === "cleared" ? ` (${opened.step})` : ""}`;
  return [
    h("h3", null, `Message ${opened.place + 1}: ${opened.role}${piece.tool ? `, ${piece.tool}` : ""} `, badge(words, opened.fate)),
    h("div", { class: "beside" },
      h("div", null, h("h4", null, `As it was sent, ${bytes(piece.bytes)}`), h("pre", { class: "said", tabindex: 0 }, opened.original || "(no text)")),
      h("div", null, h("h4", null, instead(opened, piece)), opened.instead.length
        ? opened.instead.map((each) => h("pre", { class: "said", tabindex: 0 }, each))
        : h("p", { class: "note" }, opened.fate === "kept" || opened.fate === "pinned" ? "The same, byte for byte." : "Nothing of its own: what matters of it is told by the notes around it."))),
    h("details", null, h("summary", null, "As JSON"), h("pre", { class: "said" }, opened.raw)),
  ];
}

function instead(opened, piece) {
  if (!opened.instead.length) return "What is forwarded";
  return opened.tells > 1 ? `What is forwarded for these ${opened.tells} messages` : `What is forwarded, ${bytes(piece.bytes_sent)}`;
}

function happened(events) {
  const rows = events.map((each) => [moment(each.at), badge(NAMES[each.name] ?? each.name, each.severity), words(each)]);
  return rows.length ? table(["When", "What", "Why, and what it did"], rows, "Blocks and summaries") : h("p", { class: "note" }, "None so far.");
}

export function words({ name, details }) {
  if (name.startsWith("compaction-")) {
    const steps = (details.steps ?? []).filter((each) => each.messages).map((each) => `${each.step}: ${each.messages} messages, ${many(each.saved)} tokens`);
    return h("span", null, h("code", null, details.policy), ` ${REASONS[details.reason] ?? details.reason}: ${many(details.tokens_before)} → ${many(details.tokens_after)} tokens`,
      steps.length ? h("small", null, steps.join(" · ")) : null);
  }
  if (name === "summary-ended") {
    return h("span", null, `${details.outcome} by ${details.model} after ${details.tries} tries, ${details.seconds} s`,
      h("small", null, `read ${many(details.tokens_read)} (${many(details.tokens_cached)} cached), wrote ${many(details.tokens_written)}`));
  }
  return h("span", { class: "details" }, Object.entries(details).filter(([key]) => key !== "conversation")
    .map(([key, value]) => `${key}: ${typeof value === "object" ? JSON.stringify(value) : value}`).join("; "));
}
