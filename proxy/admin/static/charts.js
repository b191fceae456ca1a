// Pictures as inline SVG: bars of sent tokens with bars of forwarded tokens in front, bars of money, stacks and lines.

import { svg } from "./dom.js";

const LEFT = 56;
const TOP = 8;
const BOTTOM = 22;
const ROUND = [1, 1.5, 2, 3, 4, 5, 6, 8, 10];

// On a phone a picture is drawn narrower, so that its words stay readable.
const wide = () => (innerWidth < 720 ? 480 : 960);

// rows: {label, tick, values: [[class, amount], …], would, mark}; the values of a row are drawn over each other, and
// the amount `would` as a line over them.
export function bars(rows, { height = 220, ...about }) {
  const amounts = rows.flatMap((row) => row.values.map(([, amount]) => amount));
  return picture(rows, amounts, { height, span: wide(), ...about }, (row, { x, y, step, width }) => [
    row.values.map(([kind, amount]) => svg("rect", {
      x: x + (step - width) / 2, width, class: kind, rx: Math.min(2, width / 3),
      y: Math.min(y(0), y(amount)), height: Math.max(amount ? 1 : 0, Math.abs(y(0) - y(amount))),
    })),
    across(row.would, x, y, step),
    row.mark && svg("path", { d: `M${x + step / 2 - 4} 1h8l-4 6z`, class: "mark-made" }),
  ]);
}

// rows: {label, tick, parts: [[class, amount], …], line}; the parts of a row stand on each other, negative ones hang
// from zero, and `line` is an amount drawn across the row. `half`: half as wide as the page.
export function stacks(rows, { height = 240, half, ...about }) {
  const sum = (row, sign) => row.parts.reduce((total, [, amount]) => total + (amount * sign > 0 ? amount : 0), 0);
  const amounts = rows.flatMap((row) => [sum(row, 1), sum(row, -1), row.line ?? 0]);
  const span = half ? Math.min(480, wide()) : wide();
  return picture(rows, amounts, { height, span, ...about }, (row, { x, y, step, width }) => {
    let above = 0, below = 0;
    const stack = row.parts.filter(([, amount]) => amount).map(([kind, amount]) => {
      const from = amount > 0 ? above : below, to = from + amount;
      if (amount > 0) above = to; else below = to;
      const high = Math.max(0.6, Math.abs(y(from) - y(to)));
      return svg("rect", { x: x + (step - width) / 2, width, class: kind, y: Math.min(y(from), y(to)), height: high });
    });
    return [stack, across(row.line, x, y, step)];
  });
}

// rows: {label, tick, values: [amount, …]}; an amount that is missing leaves a gap. `kinds`: a class for each line.
export function lines(rows, { height = 220, kinds, ...about }) {
  const isMissing = (amount) => amount === undefined || amount === null;
  const amounts = rows.flatMap((row) => row.values).filter((each) => !isMissing(each));
  const path = (which, { x, y, step }) => rows.reduce((drawn, row, place) => {
    const amount = row.values[which];
    if (isMissing(amount)) return drawn;
    const begins = place === 0 || isMissing(rows[place - 1].values[which]);
    const at = `${(x(place) + step / 2).toFixed(1)} ${y(amount).toFixed(1)}`;
    return `${drawn}${begins ? "M" : "L"}${at}${begins ? "h.1" : ""}`;
  }, "");
  const draw = (scale) => kinds.map((kind, which) => svg("path", { d: path(which, scale), class: `line ${kind}` }));
  return picture(rows, amounts, { height, span: Math.min(480, wide()), ...about }, () => null, draw);
}

// `draw(row, scale)` returns the shapes of a row; `over(scale)` those that are drawn over all rows.
function picture(rows, amounts, { height, span, told, written, chosen, choose }, draw, over) {
  const top = rounded(Math.max(1e-9, ...amounts));
  const low = Math.min(0, ...amounts);
  const y = (amount) => TOP + (height - BOTTOM - TOP) * (1 - (amount - low) / (top - low));
  const step = (span - LEFT - 4) / Math.max(1, rows.length);
  const width = Math.max(1, Math.min(28, step * 0.78));
  const x = (place) => LEFT + place * step;
  const group = (row, place) => svg("g",
    { class: chosen === place ? "row chosen" : "row", onclick: choose && (() => choose(place)) },
    svg("title", null, row.label),
    svg("rect", { x: x(place), y: 0, width: step, height: height - BOTTOM, class: "reach" }),
    draw(row, { x: x(place), y, step, width }));
  return svg("svg", { viewBox: `0 0 ${span} ${height}`, class: "chart", role: "img", "aria-label": told },
    grid(low, top, y, written, span), rows.map(group), over?.({ x, y, step }),
    ticks(rows, (place) => x(place) + step / 2, height, span));
}

const across = (amount, x, y, step) => amount !== undefined
  && svg("line", { x1: x, x2: x + step, y1: y(amount), y2: y(amount), class: "would" });

// A label near an edge is drawn towards the middle, so that none is cut off.
function ticks(rows, x, height, span) {
  const side = (at, tick) => (at + 4 * tick.length > span ? "end" : "middle");
  return rows.map(({ tick }, place) => tick && svg("text", {
    x: side(x(place), tick) === "end" ? span : x(place), y: height - 5, class: `tick ${side(x(place), tick)}`,
  }, tick));
}

// The next larger round number.
function rounded(amount) {
  const size = 10 ** Math.floor(Math.log10(amount));
  return size * ROUND.find((each) => each * size >= amount * 0.999);
}

// A loss or gain that is too small for a separate line is shown by its bars only: the labels would overlap.
function grid(low, top, y, written, span) {
  let amounts = [low, 0, top];
  if (-low < 0.25 * top) amounts = [0, top / 2, top];
  else if (top < 0.25 * -low) amounts = [low, low / 2, 0];
  return amounts.map((amount) => svg("g", null,
    svg("line", { x1: LEFT, x2: span, y1: y(amount), y2: y(amount), class: amount === 0 ? "axis" : "grid" }),
    svg("text", { x: LEFT - 8, y: y(amount) + 4, class: "tick end" }, written(amount).replace(/\.0+(?=\D|$)/, ""))));
}

// A bar that shows how much of something is left. The parts are shares of it, each drawn over the one before.
export function meter(told, parts) {
  const about = { preserveAspectRatio: "none", class: "chart meter", role: "img", "aria-label": told };
  const wide = (share) => 100 * Math.min(1, Math.max(0, share));
  const piece = ([kind, share]) => svg("rect", { width: wide(share), height: 6, class: kind });
  return svg("svg", { viewBox: "0 0 100 6", ...about }, svg("title", null, told), parts.map(piece));
}
