// The page that is shown, and the banner on top of every page.

import { get, Fault } from "./api.js";
import { h, note, show } from "./dom.js";
import { complaint } from "./faults.js";
import { zone } from "./format.js";
import { overview } from "./overview.js";
import { arms } from "./arms.js";
import { usage } from "./usage.js";
import { request, requests } from "./requests.js";
import { conversations } from "./conversations.js";
import { conversation } from "./conversation.js";
import { policies } from "./policies.js";
import { teams } from "./teams.js";
import { events } from "./events.js";
import { search } from "./search.js";
import { SWITCHES } from "./words.js";

// The last value: figures of this replica only.
const PAGES = [
  [/^\/$/, overview, "Overview"],
  [/^\/usage$/, usage, "Usage"],
  [/^\/compare$/, arms, "Compare", true],
  [/^\/requests$/, requests, "Requests", true],
  [/^\/requests\/([^/]+)$/, request, "Request"],
  [/^\/conversations$/, conversations, "Conversations", true],
  [/^\/conversations\/([^/]+)$/, conversation, "Conversation"],
  [/^\/policies(?:\/([^/]+))?$/, policies, "Policies"],
  [/^\/teams$/, teams, "Teams"],
  [/^\/events$/, events, "Events"],
  [/^\/search$/, search, "Search", true],
];
const LIVE_MILLISECONDS = 5000;
const FAILED = Symbol("a page that could not be shown, and is tried again");
const configuration = get("/configuration").catch(() => ({}));
const main = document.getElementById("main");
const banner = document.getElementById("banner");
let leave = null;

// A page is `async (place, names, query) => …`; the function it returns is called every few seconds while it is shown.
async function go(focus) {
  leave?.();
  const [path, asked] = (location.hash.slice(1) || "/").split("?");
  const [match, page, title, isLocal] = found(path);
  document.title = `${title} · compaction-proxy`;
  for (const link of document.querySelectorAll(".bar nav a")) mark(link, path);
  const place = h("div", { class: "page" }, h("p", { class: "waiting" }, "Loading …"));
  show(main, place);
  if (focus) main.focus();
  let here = true;
  let timer = 0;
  leave = () => { here = false; clearTimeout(timer); };
  const begin = () => page(place, match, new URLSearchParams(asked ?? ""));
  let live = await attempt(place, begin);
  const { shared } = await configuration;
  if (here && isLocal && shared) {
    main.append(note("Of this replica only: the others list what they served. ",
      h("a", { href: "#/usage" }, "Usage of all replicas")));
  }
  const beat = async () => {
    if (!here) return;
    if (document.visibilityState === "visible") {
      await tell();
      if (live === FAILED) live = await attempt(place, begin);
      else if (live) await attempt(place, live);
    }
    if (here) timer = setTimeout(beat, LIVE_MILLISECONDS);
  };
  timer = setTimeout(beat, LIVE_MILLISECONDS);
}

function found(path) {
  for (const [pattern, page, title, isLocal] of PAGES) {
    const match = pattern.exec(path);
    if (match) return [match.slice(1).map((each) => each && decodeURIComponent(each)), page, title, isLocal];
  }
  return [[path], nowhere, "Page not found"];
}

async function nowhere(place, [path]) {
  show(place, h("h1", null, "Page not found"),
    h("p", null, "There is no page ", h("code", null, path), ". ", h("a", { href: "#/" }, "Overview")));
}

function mark(link, path) {
  const start = link.getAttribute("href").slice(1);
  const current = start === "/" ? path === "/" : path.startsWith(start);
  if (!current) return link.removeAttribute("aria-current");
  link.setAttribute("aria-current", "page");
  link.scrollIntoView({ inline: "center", block: "nearest" });  // on a phone the row is longer than the screen
}

async function attempt(place, act) {
  try {
    const live = await act();
    place.querySelector(":scope > .gone")?.remove();
    beaten();
    return live;
  } catch (fault) {
    if (!(fault instanceof Fault)) throw fault;
    place.querySelector(":scope > .gone")?.remove();
    place.querySelector(":scope > .waiting")?.remove();
    place.prepend(h("div", { class: "gone" }, complaint(fault), note("This page tries again by itself.")));
    if (!place.querySelector("h1")) place.prepend(h("h1", null, document.title.split(" · ")[0]));
    return FAILED;
  }
}

async function tell() {
  try {
    const { switches } = await get("/switches");  // alone: if the session has ended, nothing else is asked
    const { refused } = await get("/configuration");
    const turned = switches.filter((each) => each.state !== "on");
    show(banner,
      turned.map(({ team, state }) => h("p", { class: "warn" },
        `Compaction for ${team || "all clients"}: ${SWITCHES[state].join(": ")}. `, h("a", { href: "#/teams" }, "Switches"))),
      refused ? h("p", { class: "bad" },
        "The configuration was changed, and refused; the one before it is still in force. ",
        h("a", { href: "#/events" }, "Why")) : null);
  } catch (fault) {
    show(banner, h("p", { class: "bad" }, fault.message));
  }
}

// Below every page: the time zone of all times, and when the figures were read.
async function sign() {
  const { release } = await configuration;
  show(document.getElementById("foot"),
    h("span", null, "Times in ", zone()), h("span", { id: "beat" }),
    h("span", null, `compaction-proxy ${release ?? ""}`));
  beaten();
}

function beaten() {
  const told = document.getElementById("beat");
  if (told) told.textContent = `Updated ${new Date().toLocaleTimeString("en-GB")}, every ${LIVE_MILLISECONDS / 1000} s`;
}

addEventListener("hashchange", () => { if (location.hash !== "#main") go(true); });
addEventListener("switched", tell);
tell();
sign();
go(false);
