// Teams, their keys, and the switches.

import { get, post, put, remove } from "./api.js";
import { confirming, copying } from "./controls.js";
import { badge, empty, figure, h, named, note, part, show, table } from "./dom.js";
import { attempted, complaint } from "./faults.js";
import { ago, moment } from "./format.js";
import { toPolicy, toTeam } from "./links.js";
import { SWITCHES } from "./words.js";

export async function teams(place) {
  const [{ teams: all }, { keys, last_used_of: scope }, { switches }] = await Promise.all([get("/teams"), get("/keys"), get("/switches")]);
  const again = () => teams(place);
  const states = Object.fromEntries(switches.map((each) => [each.team, each.state]));
  show(place,
    h("h1", null, "Teams"),
    part("Switches",
      note("Obeyed within a second, on every machine. Of a team's switch and that of all clients, the one counts that ",
        "allows less."),
      named(Object.values(SWITCHES)),
      turning("", "All clients", states, again),
      all.length ? [
        teamsTable(all, states, again),
        note("Attachments may decide before a team's own policy: ", h("a", { href: "#/policies" }, "Policies")),
      ] : null),
    all.length
      ? part("Keys", creating(all, again), keysTable(keys, again), note(`Last used: by ${scope}, up to a minute late.`))
      : empty("No teams yet",
        h("p", null, "Without teams all clients use their own key for the upstream. Name teams in the ",
          "configuration file to admit only their keys:"),
        h("pre", null, "teams:\n  platform:\n    policy: default")));
}

function turning(team, name, states, again, inForce) {
  const said = h("span");
  const own = states[team] ?? "on";
  const change = async (event) => {
    const choice = event.currentTarget;
    choice.disabled = true;
    try {
      await put("/switches", { team, state: choice.value });
      dispatchEvent(new Event("switched"));
      await again();
      document.querySelector(`[data-team="${CSS.escape(team)}"]`)?.focus();
    } catch (fault) {
      choice.disabled = false;
      show(said, complaint(fault));
    }
  };
  return h("div", { class: "toggle" },
    h("span", null, h("b", null, name)),
    h("select", { "aria-label": `Compaction for ${name}`, "data-team": team, onchange: change },
      Object.entries(SWITCHES).map(([state, [words]]) => h("option", { value: state, selected: state === own }, words))),
    inForce && inForce !== own ? h("span", { class: "dim" }, `${SWITCHES[inForce][0]}, because all clients are`) : null, said);
}

const HEAD = ["Team", "Own policy", "Upstream", figure("Valid keys"), "Conversations"];

const teamsTable = (all, states, again) => table(HEAD, all.map((each) => [
  turning(each.name, each.name, states, again, each.switch),
  [
    each.policy ? toPolicy(each.policy, each.policy) : h("span", { class: "dim" }, "the upstream's"),
    each.stores_text ? null : h("div", { class: "dim" }, "stores no text of conversations"),
  ],
  each.upstream || h("span", { class: "dim" }, "by model"),
  figure(String(each.open_keys)),
  toTeam(each.name, "show"),
]), "Teams", true);

function creating(all, again) {
  const said = h("div", { "aria-live": "polite" });
  const make = async (event) => {
    event.preventDefault();
    const form = new FormData(event.currentTarget);
    const wanted = { team: form.get("team"), days: Number(form.get("days") || 0), label: form.get("label") };
    await attempted(said, async () => fresh(await post("/keys", wanted), again));
  };
  return [h("form", { class: "filters", onsubmit: make },
    h("select", { name: "team", "aria-label": "Team" }, all.map((each) => h("option", null, each.name))),
    h("input", { name: "label", placeholder: "what it is for", "aria-label": "Label", maxlength: 200 }),
    h("input", {
      name: "days", type: "number", min: 0, max: 36500, step: "any",
      placeholder: "days (empty: no expiry)", "aria-label": "Days it is valid",
    }),
    h("button", { class: "primary" }, "Create a key")), said];
}

const fresh = (made, again) => h("div", { class: "fresh" },
  h("p", null, h("b", null, "Copy it now; it is not shown again."), ` Key ID ${made.told.id}.`),
  h("pre", { tabindex: 0 }, made.key),
  h("div", { class: "acts" }, copying(made.key), h("button", { onclick: again }, "Done")));

function keysTable(keys, again) {
  if (!keys.length) return note("No keys yet: no client is admitted.");
  return table(["Id", "Team", "Label", "State", "Created", "Last used", "Ends", ""], keys.map((each) => [
    h("code", null, each.id), each.team, each.label,
    badge(each.state, each.state === "open" ? "live" : ""),
    h("span", { title: moment(each.created) }, ago(each.created)),
    each.last_used ? h("span", { title: moment(each.last_used) }, ago(each.last_used)) : "–",
    each.revoked ? moment(each.revoked) : each.expires ? moment(each.expires) : "never",
    each.state === "open" ? revoking(each, again) : null,
  ]), "Keys", true);
}

function revoking(key, again) {
  return confirming("Revoke", { label: `Revoke ${key.id}`, question: "Permanently? " }, async () => {
    await remove(`/keys/${encodeURIComponent(key.id)}`);
    await again();
    return "revoked";
  });
}
