// Policies: which are in force, where they apply, what one would have made of the last days, and publishing another.

import { get, post, put, remove } from "./api.js";
import { complaint } from "./app.js";
import { pair } from "./charts.js";
import { badge, figure, h, show, table } from "./dom.js";
import { ago, dollars, exact, many, percent } from "./format.js";

export async function policies(place, [name]) {
  const told = await get("/policies");
  show(place,
    h("h1", null, "Policies"),
    h("div", { class: "cards" }, told.policies.map((each) => card(each, name))),
    name ? await detail(name, told).catch((fault) => complaint(fault)) : null,
    h("section", null, h("h2", null, "Where they apply"), attachments(told)),
    told.doubts.length ? h("section", null, h("h2", null, "Hardly meant"), h("ul", null, told.doubts.map((each) => h("li", null, h("code", null, each.path), " ", each.message)))) : null,
    told.may_publish ? publishing(told) : null);
}

const card = (each, chosen) => h("a", { class: "card", href: `#/policies/${encodeURIComponent(each.name)}`, "aria-current": each.name === chosen && "true" },
  h("b", null, each.name), " ", badge(each.kind, each.kind), each.mode === "auto" ? null : badge(each.mode, "warning"),
  h("small", null, each.version, each.inherits.length ? ` · inherits ${each.inherits[0]}` : ""));

async function detail(name, listed) {
  const told = await get(`/policies/${encodeURIComponent(name)}`);
  const set = told.values.filter((each) => each.origin !== "default");
  const body = h("div");
  const draw = (all) => show(body, all.length
    ? table(["Setting", "Value", "Set by"], all.map((each) => [h("code", null, each.path), value(each.value), each.origin]), "Values")
    : h("p", { class: "note" }, "It sets nothing: every value is the shipped default."));
  draw(set);
  return h("section", { class: "detail" },
    h("div", { class: "row-head" }, h("h2", null, name, " ", badge(told.version)),
      h("label", { class: "check" }, h("input", { type: "checkbox", onchange: (event) => draw(event.target.checked ? told.values : set) }), "with all defaults")),
    body,
    listed.may_publish ? editor(name, told) : trial(() => ({ policy: name })));
}

const value = (said) => h("code", null, typeof said === "string" ? said || "none" : JSON.stringify(said));

function editor(name, told) {
  const text = h("textarea", { rows: 6, spellcheck: "false", "aria-label": `Values of ${name}` });
  text.value = told.published ? JSON.stringify(told.published, null, 2) : "";
  text.placeholder = '{"clear_at_least": 30000}';
  const said = h("div");
  const publish = () => attempted(said, async () => {
    const done = await put(`/policies/${encodeURIComponent(name)}`, parsed(text.value));
    return [h("p", { class: "good" }, "Published. Every worker and replica has it within two seconds."), doubts(done.doubts)];
  });
  const withdraw = () => attempted(said, async () => { await remove(`/policies/${encodeURIComponent(name)}`); return h("p", { class: "good" }, "Withdrawn: the file's own counts again."); });
  return h("div", { class: "editor" },
    h("h3", null, told.published ? "What was published under this name" : "Change it while the proxy runs"),
    h("p", { class: "note" }, "Values as in the configuration file, as JSON; what is not set is inherited. Published values take the place of the file's policy of this name."),
    text,
    h("div", { class: "acts" },
      h("button", { class: "primary", onclick: publish }, "Publish"),
      told.published ? h("button", { class: "danger", onclick: withdraw }, "Withdraw") : null),
    said,
    trial(() => (text.value.trim() ? { policy: name, values: parsed(text.value) } : { policy: name })));
}

// What this policy would have made of the conversations that are kept, beside today's.
function trial(wanted) {
  const said = h("div", { "aria-live": "polite" });
  const days = h("select", { "aria-label": "Days" }, [1, 7, 30].map((each) => h("option", { value: each, selected: each === 7 }, each === 1 ? "day" : `${each} days`)));
  const button = h("button", {
    onclick: async () => {
      button.disabled = true;
      show(said, h("p", { class: "note" }, "Replaying; this takes up to 20 seconds …"));
      await attempted(said, async () => outcome(await post("/what-if", { ...wanted(), days: Number(days.value) })));
      button.disabled = false;
    },
  }, "What if?");
  return h("div", { class: "trial" },
    h("h3", null, "What if"),
    h("p", { class: "note" }, "Replays what is kept of the last ", days, " turn by turn through this policy and through ", h("code", null, "default"), " as it is today. Nothing is sent anywhere."),
    button, said);
}

function outcome({ conversations, left_out: out, tried, today }) {
  if (!tried.requests) return h("p", { class: "note" }, "No conversation of this time is kept here, so there is nothing to replay.");
  const both = (of) => [["today", "raw", of(today)], ["this policy", "sent", of(tried)]];
  const row = (name, of) => [name, figure(of(today)), figure(of(tried))];
  return [
    h("p", null, `${exact(conversations)} conversations, ${exact(tried.requests)} requests${out ? `; ${exact(out)} left out for want of time or size` : ""}.`),
    h("h4", null, "Tokens forwarded"), pair(both((each) => each.tokens_forwarded), many),
    h("h4", null, "Cost, summaries included, in percent of doing nothing"), pair(both((each) => each.cost_share), (share) => percent(share, 1)),
    table(["", figure("today"), figure("this policy")], [
      row("Dollars, where prices are known", (each) => (each.priced ? dollars(each.dollars) : "–")),
      row("Read from the cache", (each) => percent(each.cached_share, 1)),
      row("Rewrites", (each) => exact(each.rewrites)),
      row("Largest request, tokens", (each) => exact(each.peak)),
      row("Over the window", (each) => exact(each.over_window)),
      row("Summaries", (each) => exact(each.summaries)),
      row("Needed words still there", (each) => (each.retention === null ? "–" : percent(each.retention, 1))),
    ], "What if"),
  ];
}

function attachments(told) {
  if (!told.attachments.length) return h("p", { class: "note" }, "No attachments: every team has its own policy, or its upstream's.");
  const glob = (said) => (said === "*" ? h("span", { class: "dim" }, "any") : h("code", null, said || "none"));
  return table(["", "Policy", "Team", "Key", "Model", "Upstream", "Tag", figure("Priority"), figure("Roll-out"), "Mode", "From"], told.attachments.map((each, order) => [
    `${order + 1}.`,
    h("a", { href: `#/policies/${encodeURIComponent(each.policy)}` }, each.policy),
    glob(each.team), glob(each.key), glob(each.model), glob(each.upstream), glob(each.tag),
    figure(String(each.priority)), figure(`${each.rollout} %`), each.mode || "its own",
    each.unreachable_behind === null ? badge(each.published ? "published" : "file", each.published ? "published" : "") : badge("never reached", "warning"),
  ]), "Attachments");
}

function publishing(told) {
  const published = told.attachments.filter((each) => each.published).sort((one, other) => one.place - other.place);
  const text = h("textarea", { rows: 5, spellcheck: "false", "aria-label": "Attachments" });
  text.value = published.length ? JSON.stringify(published.map(bare), null, 2) : "";
  text.placeholder = '[{"policy": "default", "team": "platform", "rollout": 5, "mode": "observe"}]';
  const said = h("div");
  const publish = () => attempted(said, async () => doubts((await put("/attachments", parsed(text.value || "[]"))).doubts) ?? h("p", { class: "good" }, "Published."));
  const withdraw = () => attempted(said, async () => { await remove("/attachments"); return h("p", { class: "good" }, "Withdrawn."); });
  const made = h("div");
  const begin = (event) => {
    event.preventDefault();
    const name = new FormData(event.currentTarget).get("name");
    show(made, h("h3", null, name), editor(name, { published: null }));
    made.querySelector("textarea").focus();
  };
  return h("section", null, h("h2", null, "Publish"),
    h("p", { class: "note" }, told.published_at ? `Last published ${ago(told.published_at)}. ` : "", "Published attachments stand before the file's. An invalid one changes nothing."),
    text,
    h("div", { class: "acts" }, h("button", { class: "primary", onclick: publish }, "Publish attachments"), published.length ? h("button", { class: "danger", onclick: withdraw }, "Withdraw them") : null),
    said,
    h("h3", null, "A policy of a new name"),
    h("form", { class: "filters", onsubmit: begin },
      h("input", { name: "name", required: true, "aria-label": "Name", placeholder: "name", pattern: "[A-Za-z0-9_.\\-]{1,64}" }),
      h("button", null, "Write it")),
    made);
}

function bare({ place, published, unreachable_behind: behind, ...each }) {
  return Object.fromEntries(Object.entries(each).filter(([key, said]) => !(said === "*" || said === "" || (key === "priority" && said === 0) || (key === "rollout" && said === 100))));
}

const doubts = (found) => (found?.length ? h("div", { class: "fault soft" }, h("p", null, "Allowed, and yet hardly meant:"), h("ul", null, found.map((each) => h("li", null, h("code", null, each.path), " ", each.message)))) : null);

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch (fault) {
    throw Object.assign(new Error(`This is not JSON: ${fault.message}`), { faults: [] });
  }
}

async function attempted(place, act) {
  try {
    show(place, await act());
  } catch (fault) {
    show(place, complaint(fault));
  }
}
