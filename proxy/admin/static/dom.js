// Elements, made by hand. All texts become text nodes, so that nothing in a conversation can ever be markup.

const SVG = "http://www.w3.org/2000/svg";

export const h = (name, properties, ...children) => fill(document.createElement(name), properties, children);
export const svg = (name, properties, ...children) => fill(document.createElementNS(SVG, name), properties, children);

function fill(element, properties, children) {
  for (const [key, value] of Object.entries(properties ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else element.setAttribute(key, value === true ? "" : String(value));
  }
  element.append(...told(children));
  return element;
}

const told = (children) =>
  children.flat(Infinity).filter((each) => each !== null && each !== undefined && each !== false);

export function show(place, ...children) {
  place.replaceChildren(...told(children));
  return place;
}

// The advice on a page that has nothing to show yet.
export const empty = (title, ...advice) => h("div", { class: "empty" }, h("h2", null, title), advice);

// `stacked`: on a phone each row becomes a card, its cells named; "compact": a few lines without names.
export const table = (head, rows, caption, stacked) =>
  h("div", { class: `scroll ${stacked === "compact" ? "stacked compact" : stacked ? "stacked" : ""}`, tabindex: 0, role: "region", "aria-label": caption },
    h("table", null,
      h("thead", null, h("tr", null, head.map((each) => cell("th", each)))),
      h("tbody", null, rows.map((row) => h("tr", null, row.map((each, place) => cell("td", each, head[place]))))),
    ));

// A cell is a text or an element; figures stand to the right.
function cell(name, content, named) {
  const about = { class: isFigure(content) && "figure", scope: name === "th" && "col" };
  return h(name, { ...about, "data-name": named && bare(named) }, bare(content));
}
export const figure = (content) => ({ figure: content });
const isFigure = (content) => Boolean(content) && typeof content === "object" && "figure" in content;
const bare = (content) => (isFigure(content) ? content.figure : content);

// A sentence, with the `names` between backticks as code.
export const prose = (text) =>
  text.replaceAll("\n", " ").split("`").map((piece, at) => (at % 2 ? h("code", null, piece) : piece));

// Names with their values: [[name, value], …]; rows that are missing are left out.
export const named = (rows, kind = "turn") => h("dl", { class: kind },
  rows.filter(Boolean).map(([name, value]) => h("div", null, h("dt", null, name), h("dd", null, value))));

// A part of a page, and a remark on it.
export const part = (title, ...children) => h("section", null, h("h2", null, title), children);
export const note = (...words) => h("p", { class: "note" }, words);

export const badge = (text, kind) => h("span", { class: `badge ${kind ?? ""}` }, text);
