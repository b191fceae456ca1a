// The list of conversations: the newest first, filtered by team, model or a name.

import { get } from "./api.js";
import { meter } from "./charts.js";
import { badge, empty, figure, h, show, table } from "./dom.js";
import { attempted } from "./faults.js";
import { choice, goTo } from "./controls.js";
import { ago, cents, exact, less, many, moment, percent } from "./format.js";
import { lessNet, LOOKED_AT, meanings } from "./words.js";

export async function conversations(place, _, query) {
  const names = ["team", "model", "user", "session", "text", "sort"];
  const wanted = Object.fromEntries(names.map((name) => [name, query.get(name) ?? ""]));
  const filtered = Object.values(wanted).some(Boolean);
  const list = h("div");
  let pages = [await get("/conversations", wanted)];
  const drawn = () => (pages[0].conversations.length ? [rows(pages), more()] : nothing(filtered));
  const more = () => {
    const before = pages.at(-1).next;
    const older = () => attempted(list, async () => {
      pages.push(await get("/conversations", { ...wanted, before }));
      return drawn();
    });
    return before === null ? null : h("button", { class: "more", onclick: older }, "Older ones");
  };
  show(place, h("h1", null, "Conversations"), filters(wanted, pages[0]), list,
    meanings("Eligible", "Tokens in", "Forwarded", "Less, net", "Cached", "Rewrites", "Fetched again", "Spent", "Saved"));
  show(list, drawn());
  return async () => {
    if (pages.length > 1 || list.contains(document.activeElement)) return;  // the list must not change under a reader
    pages = [await get("/conversations", wanted)];
    show(list, drawn());
  };
}

function filters(wanted, { teams, models }) {
  const change = (event) => {
    event.preventDefault();
    goTo("/conversations", event.currentTarget.form ?? event.currentTarget);
  };
  const placeholder = "id, model, policy, tag, user, session …";
  const hidden = (name) => (wanted[name] ? h("input", { type: "hidden", name, value: wanted[name] }) : null);
  return h("form", { class: "filters", onsubmit: change },
    teams.length ? choice("team", "All teams", teams, wanted.team, change) : null,
    models.length > 1 ? choice("model", "All models", models, wanted.model, change) : null,
    h("input", { type: "search", name: "text", value: wanted.text, placeholder, "aria-label": "Filter by a name" }),
    hidden("user"), hidden("session"), hidden("sort"),
    h("button", null, "Filter"),
    Object.values(wanted).some(Boolean) ? h("a", { href: "#/conversations" }, "Clear") : null,
    wanted.sort ? null : h("a", { href: "#/conversations?sort=saved" }, "Smallest saving first"),
    h("a", { href: "#/search" }, "Search in messages"));
}

const nothing = (filtered) => filtered
  ? empty("No conversations match",
    h("p", null, "No conversation matches this filter. ", h("a", { href: "#/conversations" }, "Show all")))
  : empty("No conversations yet",
    h("p", null, `A conversation appears here once its history is ${LOOKED_AT}. Shorter ones pass untouched: `,
      h("a", { href: "#/requests" }, "All requests")));

// Agents that begin alike may share a conversation; their sessions tell them apart.
const address = (each) => `#/conversations/${encodeURIComponent(each.conversation)}`
  + (each.session ? `?${new URLSearchParams({ session: each.session })}` : "");

const HEAD = ["Conversation", "Team, user", "Model, policy", figure("Requests"), "Tokens: sent → forwarded", figure("Cached"),
  figure("Rewrites"), figure("Fetched again"), figure("Spent"), figure("Saved"), "Last"];

const rows = (pages) => table(HEAD, pages.flatMap((page) => page.conversations).map((each) => [
  h("a", { class: "titled", href: address(each) },
    h("b", null, each.title || each.conversation),
    h("small", null, [each.title && each.conversation, each.tag, each.session && `session ${each.session}`].filter(Boolean)
      .join(" · "))),
  h("span", { class: "word", title: each.user }, each.team || "–", h("small", null, each.user)),
  h("span", { class: "word", title: each.model }, each.model, h("small", null, each.policy.split("@")[0])),
  figure(exact(each.requests)),
  tokens(each),
  figure(each.cached_share === null ? "–" : percent(each.cached_share)),
  figure(exact(each.blocks)),
  figure(exact(each.refetches)),
  figure(each.paid === null ? "–" : cents(each.paid + each.spent)),
  figure(cents(each.saved)),
  h("span", { class: "when short", title: moment(each.last) }, each.open ? badge("live", "live") : ago(each.last)),
]), "Conversations", true);

function tokens(each) {
  const { tokens_raw: raw, tokens_forwarded: sent, tokens_would_be: would } = each;
  const told = `${lessNet(each)}${would < sent ? `; would be ${many(would)}, ${less(raw, would)} less` : ""}`;
  return h("span", { class: "flow" }, h("span", null, `${many(raw)} → ${many(sent)}`, h("small", null, told)),
    meter(`${many(raw)} tokens in, ${many(sent)} forwarded: ${told}`, [["raw", 1], ["sent", raw ? sent / raw : 0]]));
}
