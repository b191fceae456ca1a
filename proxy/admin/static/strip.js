// The messages of a history as a strip of blocks. A block is as wide as its message was long, filled by the share
// that is still sent, in the colour of its status. If it is opened, it shows the original next to its replacement.

import { get } from "./api.js";
import { copying } from "./controls.js";
import { compare, side, unified } from "./diff.js";
import { badge, h, show } from "./dom.js";
import { attempted } from "./faults.js";
import { bytes } from "./format.js";
import { STATUSES } from "./words.js";

// One stop for the Tab key; arrows, Home and End go from message to message. `opened`: the place of the message to open.
export function strip(pieces, { covers, path, at, opened, onOpen }) {
  const pane = h("div", { class: "pane", "aria-live": "polite" });
  const blocks = pieces.map((piece) => block(piece, () => open(piece)));
  const open = (piece) => {
    blocks.forEach((each) => { each.tabIndex = -1; each.setAttribute("aria-pressed", "false"); });
    blocks[piece.place].tabIndex = 0;
    blocks[piece.place].setAttribute("aria-pressed", "true");
    onOpen(piece);
    return attempted(pane, async () => beside(await get(`${path}/messages/${piece.place}`, { at }), piece));
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
  if (opened !== undefined) open(pieces[opened]);
  const newer = blocks.slice(covers);
  const cut = covers && newer.length ? h("span", { class: "cut", title: "newer messages are not shortened" }) : null;
  const told = "Messages, the oldest first; arrows move, Enter opens";
  const about = { class: "strip", role: "toolbar", "aria-label": told, onkeydown: step };
  return [h("div", about, blocks.slice(0, covers), cut, newer), pane];
}

function block(piece, open) {
  const status = `${STATUSES[piece.status]}${piece.step ? ` (${piece.step})` : ""}`;
  const who = `${piece.place + 1}, ${piece.role}${piece.tool ? ` ${piece.tool}` : ""}`;
  const made = h("button", {
    type: "button", tabindex: -1, "aria-pressed": "false", onclick: open,
    class: `block ${piece.status} by-${piece.role.replace(/[^a-z]/g, "")}`,
    title: `${who}: ${status}, ${bytes(piece.bytes)} → ${bytes(piece.bytes_sent)}\n${piece.preview}`,
    "aria-label": `Message ${who}, ${STATUSES[piece.status]}, ${bytes(piece.bytes)}`,
  }, h("i"));
  made.style.setProperty("--wide", String(Math.max(1, Math.log2(1 + piece.bytes / 96))));
  made.style.setProperty("--full", String(piece.bytes ? Math.min(1, piece.bytes_sent / piece.bytes) : 1));
  return made;
}

function beside(opened, piece) {
  const status = `${STATUSES[opened.status]}${opened.step && opened.status === "cleared" ? ` (${opened.step})` : ""}`;
  const who = `Message ${opened.place + 1}: ${opened.role}${piece.tool ? `, ${piece.tool}` : ""} `;
  // A note that stands for several messages cannot be compared with one of them.
  const changes = opened.instead.length && opened.tells === 1 ? compare(opened.original, opened.instead.join("\n")) : null;
  const shown = h("div");
  const draw = (way) => show(shown, way === "changes" ? oneColumn(changes, opened, piece) : twoColumns(changes, opened, piece));
  const ways = [["beside", "Side by side"], ["changes", "Changes"]].map(([way, words]) =>
    h("label", { class: "check" },
      h("input", { type: "radio", name: "way", value: way, checked: way === chosenWay(), onchange: () => draw(chosen = way) }),
      words));
  draw(changes ? chosenWay() : "beside");
  return [
    h("div", { class: "row-head" }, h("h3", null, who, badge(status, opened.status)),
      h("span", { class: "acts" }, changes ? ways : null, copying(opened.original, "Copy the original"),
        copying(location.href, "Copy the link"))),
    shown,
    h("details", null, h("summary", null, "As JSON"), said(opened.raw)),
  ];
}

let chosen = null;  // until a person chooses, the width of the window decides
const chosenWay = () => chosen ?? (innerWidth < 720 ? "changes" : "beside");

const twoColumns = (changes, opened, piece) => h("div", { class: "beside" },
  h("div", null, h("h4", null, `As it was sent, ${bytes(piece.bytes)}`),
    changes ? side(changes, "gone") : said(opened.original || "(no text)")),
  h("div", null, h("h4", null, heading(opened, piece)), changes ? side(changes, "new") : instead(opened)));

const oneColumn = (changes, opened, piece) => h("div", { class: "beside" }, h("div", null,
  h("h4", null, `From ${bytes(piece.bytes)} as sent to what is forwarded`), unified(changes)));

export const said = (text) => h("pre", { class: "said", tabindex: 0 }, text);

function heading(opened, piece) {
  if (!opened.instead.length) return "What is forwarded";
  return opened.tells > 1
    ? `What is forwarded for these ${opened.tells} messages`
    : `What is forwarded, ${bytes(piece.bytes_sent)}`;
}

function instead({ instead: told, status }) {
  if (told.length) return told.map(said);
  const same = status === "kept" || status === "pinned";
  return h("p", { class: "note" },
    same ? "The same, byte for byte." : "Nothing: the notes around it stand for this message.");
}
