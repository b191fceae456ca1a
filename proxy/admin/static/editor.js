// A draft of a policy: a form with a field for each setting, the change that it makes to the file, and a trial.
// The configuration file is the only place where policies are set: the page shows the text to put there.

import { get, post } from "./api.js";
import { copying } from "./controls.js";
import { badge, h, note, prose, show } from "./dom.js";
import { attempted } from "./faults.js";
import { trial } from "./trial.js";

const BASIC = ["inherit", "mode", "clear_at_least", "trigger", "target", "keep.tokens", "summary.enabled", "summary.model"];

export async function editor(name, told, context) {
  const { settings } = await get("/policy-settings");
  const begun = own(name, told);
  const effective = new Map(told.values.map((each) => [each.path, each.value]));
  const title = h("input", { name: "policy", value: name, "aria-label": "Name of the policy", pattern: "[A-Za-z0-9_.-]+" });
  const { element: place, read } = form(settings, begun, effective);
  const said = h("div", { "aria-live": "polite" });
  const check = () => attempted(said, async () => {
    place.querySelectorAll("[aria-invalid]").forEach((each) => each.removeAttribute("aria-invalid"));
    try {
      return outcome(await post("/policy-drafts", { policy: title.value, values: read() }));
    } catch (fault) {
      for (const { path } of fault.faults ?? []) {
        place.querySelector(`[name="${CSS.escape(path)}"]`)?.setAttribute("aria-invalid", "true");
      }
      throw fault;
    }
  });
  const draft = () => {
    const now = read();
    return JSON.stringify(now) === JSON.stringify(begun) ? null : now;
  };
  return h("div", { class: "editor" },
    h("h3", null, "Edit a draft"),
    note("Fields that are empty inherit. Nothing is changed here: check the draft, try it, and put the text into the ",
      "configuration file, which is read again at once."),
    place,
    h("div", { class: "acts writes" }, h("label", null, "Name ", title),
      h("button", { type: "button", class: "primary", onclick: check }, "Check, and show the change")),
    said,
    trial(name, draft, context));
}

function form(settings, values, effective) {
  const search = h("input", { type: "search", placeholder: "find a setting", "aria-label": "Find a setting" });
  const all = h("input", { type: "checkbox" });
  const fields = settings.map((each) => field(each, pick(values, each.path), effective.get(each.path)));
  const filter = () => {
    const words = search.value.toLowerCase();
    for (const each of fields) {
      const { path, about } = each.setting;
      const isWanted = words ? `${path} ${about}`.toLowerCase().includes(words)
        : all.checked || BASIC.includes(path) || each.isSet();
      each.row.toggleAttribute("hidden", !isWanted);
    }
  };
  search.oninput = filter;
  all.onchange = filter;
  filter();
  const read = () => {
    const found = {};
    for (const each of fields) {
      const value = each.read();
      if (value !== undefined) put(found, each.setting.path, value);
    }
    return found;
  };
  const element = h("div", null,
    h("div", { class: "filters" }, search, h("label", { class: "check" }, all, `all ${settings.length} settings`)),
    h("div", { class: "fields" }, fields.map((each) => each.row)));
  return { element, read };
}

function field(setting, value, inherited) {
  const { path, kind, about } = setting;
  const written = (each) => (typeof each === "string" ? each : JSON.stringify(each));
  const now = inherited === undefined ? "" : written(inherited);
  const input = control(setting, value, now);
  input.id = `field-${path}`;
  const read = () => {
    const text = input.value.trim();
    if (!text) return undefined;
    if (kind === "text" || kind === "choice") return text;
    if (kind === "boolean") return text === "true";
    if (kind === "json" && text === "auto") return text; // beside a number, as of `trigger`
    try {
      return JSON.parse(text);
    } catch (fault) {
      throw Object.assign(new Error(`${path} is not ${kind === "json" ? "JSON" : "a number"}: ${fault.message}`), {
        faults: [{ path, message: "cannot be read" }],
      });
    }
  };
  const row = h("div", { class: kind === "json" ? "field wide" : "field" },
    h("label", { for: input.id }, h("code", null, path), value === undefined ? null : [" ", badge("set here")]),
    input, h("small", null, prose(about)));
  return { setting, row, read, isSet: () => input.value.trim() !== "" };
}

function control({ path, kind, choices, minimum, maximum }, value, now) {
  const said = value === undefined ? "" : typeof value === "string" ? value : JSON.stringify(value);
  if (kind === "choice" || kind === "boolean") {
    const names = kind === "boolean" ? ["true", "false"] : choices;
    return h("select", { name: path },
      h("option", { value: "" }, `inherited: ${now}`),
      names.map((each) => h("option", { value: each, selected: each === said }, each)));
  }
  const placeholder = now.length > 80 ? `${now.slice(0, 80)} …` : now;
  if (kind === "json") {
    const text = h("textarea", { name: path, rows: said ? 4 : 2, spellcheck: "false", placeholder });
    text.value = said;
    return text;
  }
  const type = kind === "text" ? "text" : "number";
  return h("input", { name: path, type, min: minimum, max: maximum, step: kind === "integer" ? 1 : "any", value: said, placeholder });
}

const pick = (values, path) => path.split(".").reduce((at, step) => at?.[step], values);

function put(values, path, value) {
  const [block, setting] = path.split(".");
  if (setting) values[block] = { ...values[block], [setting]: value };
  else values[block] = value;
}

// What a policy says itself, and does not inherit.
function own(name, { values, inherits }) {
  const said = inherits?.length && inherits[0] !== "default" ? { inherit: inherits[0] } : {};
  const itself = [`(policy ${name})`, `shipped policy ${name}`];
  for (const each of values ?? []) {
    if (itself.some((origin) => each.origin.endsWith(origin))) put(said, each.path, each.value);
  }
  return said;
}

function outcome({ entry, file, why_no_file: why, name, diff, version, doubts }) {
  const kind = (text) => (text.startsWith("+") ? "new" : text.startsWith("-") ? "gone" : "same");
  const lines = diff.split("\n").slice(2).filter((each) => each && !each.startsWith("\\"));
  return [
    h("p", { class: "good" }, `The draft is valid. Its version would be ${version}.`),
    doubts.length ? h("div", { class: "fault soft" }, h("p", null, "Valid, but probably a mistake:"),
      h("ul", null, doubts.map(({ path, message }) => h("li", null, h("code", null, path), " ", prose(message))))) : null,
    file === null ? note(`Put this text into ${name} by hand: ${why}.`)
      : lines.length ? [
        h("h4", null, `What changes in ${name}`),
        h("pre", { class: "said plain", tabindex: 0 }, lines.map((each) =>
          h("span", { class: each.startsWith("@@") ? "diff dim" : `diff ${kind(each)}` }, each, "\n"))),
      ] : note(`${name} says this already.`),
    h("div", { class: "acts" }, copying(entry, "Copy the policy"),
      file === null ? null : [copying(file, "Copy the whole file"), saving(file, name)]),
    file === null ? h("pre", null, entry) : null,
  ];
}

function saving(text, name) {
  const save = () => {
    const link = h("a", { href: URL.createObjectURL(new Blob([text], { type: "text/yaml" })), download: name });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
  };
  return h("button", { type: "button", class: "quiet", onclick: save }, `Download ${name}`);
}
