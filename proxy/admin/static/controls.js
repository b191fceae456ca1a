// Controls of several pages: choices in a row, a form of filters, figures, buttons.

import { h, note, show, table } from "./dom.js";
import { attempted } from "./faults.js";
import { ago } from "./format.js";

export const SPANS = [[1, "1 h"], [6, "6 h"], [24, "24 h"], [168, "7 d"], [744, "31 d"]];

// Choices as links: [[value, words], …]; `link(value)` returns the address of each.
export const options = (label, all, chosen, link) => h("nav", { class: "spans", "aria-label": label },
  all.map(([value, words]) =>
    h("a", { href: link(value), "aria-current": value === chosen && "true" }, words)));

export const choice = (name, all, names, chosen, change) =>
  h("select", { name, "aria-label": name, onchange: change },
    all && h("option", { value: "" }, all),
    names.map((each) => h("option", { value: each, selected: each === chosen }, each)));

// The fields of a form that are filled in become the query of a page.
export function goTo(page, form, fixed = {}) {
  const said = [...new FormData(form)].filter(([, value]) => value);
  const query = new URLSearchParams({ ...fixed, ...Object.fromEntries(said) });
  location.hash = `#${page}${query.size ? `?${query}` : ""}`;
}

// A figure in large type; `drawn` is a picture below it.
export const tile = (name, value, words, drawn) => h("div", { class: "tile" },
  h("h3", null, name), h("p", { class: "value" }, value), drawn, note(words));

// The replicas whose figures these are. One that is away counts with the figures that it published last.
export const ofReplicas = ({ machines }) => machines.length > 1
  ? note(`Of ${machines.length} replicas: `, machines.map(({ name, at, own }, place) =>
    `${place ? ", " : ""}${name} (${own ? "this one" : `read ${ago(at)}`})`))
  : note("Of this replica.");

// A table of the newest rows, the first `count`; all of them at a click, for as long as the page is open.
const whole = new Set();
export function newest(head, rows, caption, count) {
  if (rows.length <= count || whole.has(caption)) return table(head, rows, caption, true);
  const place = h("div", null, table(head, rows.slice(0, count), caption, true));
  const all = () => { whole.add(caption); show(place, table(head, rows, caption, true)); };
  place.append(h("button", { class: "more", onclick: all }, `All ${rows.length}`));
  return place;
}

// Shows what `read` returns; the function that comes back shows it anew, unless somebody reads. A link keeps the focus.
export async function redrawn(place, read) {
  const again = async () => {
    const content = await read();
    const focused = document.activeElement?.getAttribute("href");
    show(place, content);
    if (focused) place.querySelector(`a[href="${CSS.escape(focused)}"]`)?.focus();
  };
  await again();
  const isRead = () => place.querySelector("details[open], summary:focus, [role=region]:focus");
  return () => (isRead() ? null : again());
}

export function copying(text, words = "Copy") {
  const button = h("button", { type: "button", class: "quiet", onclick: async () => {
    // A browser gives no clipboard to a page without TLS.
    const done = await navigator.clipboard?.writeText(text).then(() => true, () => false);
    button.textContent = done ? "Copied" : "Select it, and copy it by hand";
    setTimeout(() => { button.textContent = words; }, 2000);
  } }, words);
  return button;
}

// A button for an act that cannot be undone: it asks once more. `act` returns the elements that report the result.
export function confirming(words, { label, question }, act) {
  const said = h("span");
  const ask = () => {
    show(said, h("span", { class: "acts" }, question,
      h("button", { class: "danger", onclick: () => attempted(said, act) }, words),
      h("button", { onclick: rest }, "Keep")));
    said.querySelector("button").focus();
  };
  const rest = () => show(said, h("button", { class: "quiet", "aria-label": label, onclick: ask }, words));
  return rest();
}
