// Policies: which are in force, where they apply, and publishing another.

import { get, put, remove } from "./api.js";
import { attempted, complaint } from "./faults.js";
import { badge, figure, h, note, part, show, table } from "./dom.js";
import { ago } from "./format.js";
import { toPolicy } from "./links.js";
import { trial } from "./trial.js";

export async function policies(place, [name]) {
  const [told, { teams }] = await Promise.all([get("/policies"), get("/conversations", { limit: 1 })]);
  const names = told.policies.map((each) => each.name);
  const context = { names, teams, publishes: told.may_publish };
  show(place,
    h("h1", null, "Policies"),
    h("div", { class: "cards" }, told.policies.map((each) => card(each, name))),
    name
      ? await detail(name, context).catch((fault) => complaint(fault))
      : note("Choose a policy to see its values, to try others on last week's traffic, and to publish them."),
    part("Where they apply", attachments(told)),
    told.doubts.length ? part("Allowed, but perhaps not what you want", list(told.doubts)) : null,
    told.may_publish ? publishing(told, context) : null);
}

const list = (flaws) => h("ul", null, flaws.map(flaw));
const flaw = ({ path, message }) => h("li", null, h("code", null, path), " ", message);

const card = (each, chosen) => h("a", {
  class: "card", href: `#/policies/${encodeURIComponent(each.name)}`, "aria-current": each.name === chosen && "true",
},
  h("b", null, each.name), " ", badge(each.kind, each.kind), each.mode === "auto" ? null : badge(each.mode, "warning"),
  h("small", null, each.version, each.inherits.length ? ` · inherits ${each.inherits[0]}` : ""));

async function detail(name, context) {
  const told = await get(`/policies/${encodeURIComponent(name)}`);
  const set = told.values.filter((each) => each.origin !== "default");
  const body = h("div");
  const row = (each) => [h("code", null, each.path), value(each.value), each.origin];
  const draw = (all) => show(body, all.length
    ? table(["Setting", "Value", "Set by"], all.map(row), "Values")
    : note("It sets nothing: every value is the shipped default."));
  draw(set);
  const all = ({ target }) => draw(target.checked ? told.values : set);
  return h("section", { class: "detail" },
    h("div", { class: "row-head" }, h("h2", null, name, " ", badge(told.version)),
      h("label", { class: "check" }, h("input", { type: "checkbox", onchange: all }), "with all defaults")),
    body,
    context.publishes ? editor(name, told, context) : trial(name, () => null, context));
}

const value = (said) => h("code", null, typeof said === "string" ? said || "none" : JSON.stringify(said));

// A draft: it begins as what the policy itself says now, can be tried as it stands there, and is published as a whole.
function editor(name, told, context) {
  const begun = JSON.stringify(told.published ?? own(name, told), null, 2);
  const text = h("textarea", {
    rows: 8, spellcheck: "false", "aria-label": `Values of ${name}`, placeholder: '{"clear_at_least": 30000}',
  });
  text.value = begun === "{}" ? "" : begun;
  const said = h("div", { "aria-live": "polite" });
  const draft = () => parsed(text.value.trim() || "{}");
  const publish = () => attempted(said, async () => {
    const { doubts } = await put(`/policies/${encodeURIComponent(name)}`, draft());
    return [good("Published. Every worker and replica has it within two seconds."), doubted(doubts)];
  });
  const withdraw = () => attempted(said, async () => {
    await remove(`/policies/${encodeURIComponent(name)}`);
    return good("Withdrawn: what the file says of it counts again.");
  });
  return h("div", { class: "editor" },
    h("h3", null, told.published ? "What was published under this name" : "Change it while the proxy runs"),
    note("A draft: values as in the configuration file, as JSON; what is not set is inherited. Once published, it ",
      "takes the place of what the file says of this policy."),
    text,
    trial(name, () => (text.value.trim() === begun ? null : draft()), context),
    h("div", { class: "acts" },
      h("button", { class: "primary", onclick: publish }, "Publish"),
      told.published ? h("button", { class: "danger", onclick: withdraw }, "Withdraw") : null),
    said);
}

// What a policy says itself, and does not inherit.
function own(name, { values, inherits }) {
  const said = inherits?.length && inherits[0] !== "default" ? { inherit: inherits[0] } : {};
  const itself = [`(policy ${name})`, `shipped policy ${name}`];
  for (const each of values ?? []) {
    if (!itself.some((origin) => each.origin.endsWith(origin))) continue;
    const [block, setting] = each.path.split(".");
    if (setting) said[block] = { ...said[block], [setting]: each.value };
    else said[block] = each.value;
  }
  return said;
}

function attachments(told) {
  if (!told.attachments.length) return note("No attachments: every team has its own policy, or its upstream's.");
  const glob = (said) => (said === "*" ? h("span", { class: "dim" }, "any") : h("code", null, said || "none"));
  const figures = [figure("Priority"), figure("Roll-out")];
  const head = ["", "Policy", "Team", "Key", "Model", "Upstream", "Tag", ...figures, "Mode", "From"];
  return table(head, told.attachments.map((each, order) => [
    `${order + 1}.`,
    toPolicy(each.policy, each.policy),
    glob(each.team), glob(each.key), glob(each.model), glob(each.upstream), glob(each.tag),
    figure(String(each.priority)), figure(`${each.rollout} %`), each.mode || "its own",
    origin(each),
  ]), "Attachments", true);
}

function origin({ published, unreachable_behind: behind }) {
  if (behind !== null) return badge("never reached", "warning");
  return published ? badge("published", "published") : badge("file");
}

function publishing(told, context) {
  const published = told.attachments.filter((each) => each.published).sort((one, other) => one.place - other.place);
  const placeholder = '[{"policy": "default", "team": "platform", "rollout": 5, "mode": "observe"}]';
  const text = h("textarea", { rows: 5, spellcheck: "false", "aria-label": "Attachments", placeholder });
  text.value = published.length ? JSON.stringify(published.map(bare), null, 2) : "";
  const said = h("div", { "aria-live": "polite" });
  const publish = () => attempted(said, async () => {
    const { doubts } = await put("/attachments", parsed(text.value || "[]"));
    return [good("Published. Every worker and replica has them within two seconds."), doubted(doubts)];
  });
  const withdraw = () => attempted(said, async () => {
    await remove("/attachments");
    return good("Withdrawn.");
  });
  const made = h("div");
  const begin = (event) => {
    event.preventDefault();
    const name = new FormData(event.currentTarget).get("name");
    show(made, h("h3", null, name), editor(name, { published: null }, context));
    made.querySelector("textarea").focus();
  };
  return part("Publish",
    note(told.published_at ? `Last published ${ago(told.published_at)}. ` : "",
      "Published attachments stand before the file's. An invalid one changes nothing."),
    text,
    h("div", { class: "acts" },
      h("button", { class: "primary", onclick: publish }, "Publish attachments"),
      published.length ? h("button", { class: "danger", onclick: withdraw }, "Withdraw them") : null),
    said,
    h("h3", null, "A policy of a new name"),
    h("form", { class: "filters", onsubmit: begin },
      h("input", {
        name: "name", required: true, pattern: "[A-Za-z0-9_.\\-]{1,64}", "aria-label": "Name", placeholder: "name",
      }),
      h("button", null, "Write it")),
    made);
}

// An attachment as it would be written: without what nobody has to say.
function bare({ place: _, published: __, unreachable_behind: ___, ...each }) {
  const unsaid = { priority: 0, rollout: 100 };
  const said = ([key, value]) => value !== "*" && value !== "" && value !== unsaid[key];
  return Object.fromEntries(Object.entries(each).filter(said));
}

const good = (words) => h("p", { class: "good" }, words);

const doubted = (found) => (found?.length
  ? h("div", { class: "fault soft" }, h("p", null, "Allowed, but perhaps not what you want:"), list(found))
  : null);

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch (fault) {
    throw new Error(`This is not JSON: ${fault.message}`);
  }
}
