// Policies: which are in force, and where they apply.

import { get } from "./api.js";
import { complaint } from "./faults.js";
import { badge, figure, h, note, part, prose, show, table } from "./dom.js";
import { toPolicy } from "./links.js";

export async function policies(place, [name]) {
  const told = await get("/policies");
  show(place,
    h("h1", null, "Policies"),
    h("div", { class: "cards" }, told.policies.filter((each) => !isForComparison(each)).map((each) => card(each, name))),
    h("details", { open: told.policies.some((each) => isForComparison(each) && each.name === name) },
      h("summary", null, "Included for comparison: what other tools do"),
      h("div", { class: "cards" }, told.policies.filter(isForComparison).map((each) => card(each, name)))),
    name
      ? await detail(name).catch((fault) => complaint(fault))
      : note("Choose a policy to see its values."),
    part("Where they apply", attachments(told)),
    told.doubts.length ? part("Warnings", list(told.doubts)) : null);
}

const isForComparison = ({ kind, name }) => kind === "shipped" && !["lossless", "observe", "off"].includes(name);

const list = (flaws) => h("ul", null, flaws.map(flaw));
const flaw = ({ path, message }) => h("li", null, h("code", null, path), " ", prose(message));

const card = (each, chosen) => h("a", {
  class: "card", href: `#/policies/${encodeURIComponent(each.name)}`, "aria-current": each.name === chosen && "true",
},
  h("b", null, each.name), " ", badge(each.kind, each.kind), each.mode === "auto" ? null : badge(each.mode, "warning"),
  h("small", null, each.version, each.inherits.length ? ` · inherits ${each.inherits[0]}` : ""));

async function detail(name) {
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
    body);
}

const value = (said) => h("code", null, typeof said === "string" ? said || "none" : JSON.stringify(said));

function attachments(told) {
  if (!told.attachments.length) return note("No attachments: every team has its own policy, or its upstream's.");
  const glob = (said) => (said === "*" ? h("span", { class: "dim" }, "any") : h("code", null, said || "none"));
  const figures = [figure("Roll-out"), figure("Holdout")];
  const head = ["", "Policy", "Team", "Key", "Model", "Upstream", "Tag", ...figures, "Mode"];
  return table(head, told.attachments.map((each, order) => [
    `${order + 1}.`,
    toPolicy(each.policy, each.policy),
    glob(each.team), glob(each.key), glob(each.model), glob(each.upstream), glob(each.tag),
    figure(`${each.rollout} %`), figure(each.holdout ? `${each.holdout} %` : "–"), each.mode || "its own",
  ]), "Attachments", true);
}
