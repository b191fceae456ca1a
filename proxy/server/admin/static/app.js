// Which page is shown, and what is said on top of every page.

import { get, Fault } from "./api.js";
import { h, show } from "./dom.js";
import { overview } from "./overview.js";
import { conversations } from "./conversations.js";
import { conversation } from "./conversation.js";
import { policies } from "./policies.js";
import { teams } from "./teams.js";
import { events } from "./events.js";
import { search } from "./search.js";

const PAGES = [
  [/^\/$/, overview, "Overview"],
  [/^\/conversations$/, conversations, "Conversations"],
  [/^\/conversations\/([^/]+)$/, conversation, "Conversation"],
  [/^\/policies(?:\/([^/]+))?$/, policies, "Policies"],
  [/^\/teams$/, teams, "Teams"],
  [/^\/events$/, events, "Events"],
  [/^\/search$/, search, "Search"],
];
const LIVE_MILLISECONDS = 5000;
const main = document.getElementById("main");
const banner = document.getElementById("banner");
let leave = null;

// A page is `async (place, names, query, again) => …`; what it returns is called every few seconds while it is looked at.
async function go(focus) {
  leave?.();
  const [path, asked] = (location.hash.slice(1) || "/").split("?");
  const [match, page, title] = found(path);
  document.title = `${title} · compaction-proxy`;
  for (const link of document.querySelectorAll(".bar nav a")) mark(link, path);
  const place = h("div", { class: "page" }, h("p", { class: "waiting" }, "…"));
  show(main, place);
  if (focus) main.focus();
  let here = true;
  let timer = 0;
  leave = () => { here = false; clearTimeout(timer); };
  const live = await attempt(place, () => page(place, match, new URLSearchParams(asked ?? "")));
  const beat = async () => {
    if (!here) return;
    if (live && document.visibilityState === "visible") await attempt(place, live);
    if (here) timer = setTimeout(beat, LIVE_MILLISECONDS);
  };
  timer = setTimeout(beat, LIVE_MILLISECONDS);
}

function found(path) {
  for (const [pattern, page, title] of PAGES) {
    const match = pattern.exec(path);
    if (match) return [match.slice(1).map((each) => each && decodeURIComponent(each)), page, title];
  }
  return [[], overview, "Overview"];
}

function mark(link, path) {
  const start = link.getAttribute("href").slice(1);
  const current = start === "/" ? path === "/" : path.startsWith(start);
  if (current) link.setAttribute("aria-current", "page");
  else link.removeAttribute("aria-current");
}

async function attempt(place, act) {
  try {
    const live = await act();
    place.querySelector(":scope > .fault.gone")?.remove();
    return live;
  } catch (fault) {
    if (!(fault instanceof Fault)) throw fault;
    place.querySelector(":scope > .fault")?.remove();
    place.querySelector(":scope > .waiting")?.remove();
    place.prepend(complaint(fault, "gone"));
    if (!place.querySelector("h1")) place.prepend(h("h1", null, document.title.split(" · ")[0]));
    return null;
  }
}

export const complaint = (fault, kind = "") =>
  h("div", { class: `fault ${kind}`, role: "alert" },
    h("p", null, fault.message),
    fault.faults?.length ? h("ul", null, fault.faults.map((each) => h("li", null, each.path && h("code", null, each.path), each.path && " ", each.message))) : null);

async function tell() {
  try {
    const [{ switches }, { refused }] = await Promise.all([get("/switches"), get("/configuration")]);
    const off = switches.filter((each) => !each.on).map((each) => each.team || "everybody");
    show(banner,
      off.length ? h("p", { class: "warn" }, `Compaction is switched off for ${off.join(", ")}: no new blocks are made, standing ones stay. `, h("a", { href: "#/teams" }, "Switches")) : null,
      refused ? h("p", { class: "bad" }, "The last change of the configuration was refused; what was in force before still is. ", h("a", { href: "#/events" }, "Why")) : null);
  } catch (fault) {
    show(banner, h("p", { class: "bad" }, fault.message));
  }
}

addEventListener("hashchange", () => { if (location.hash !== "#main") go(true); });
addEventListener("switched", tell);
setInterval(() => document.visibilityState === "visible" && tell(), LIVE_MILLISECONDS);
tell();
go(false);
