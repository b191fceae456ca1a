// Figures and moments in people's words.

const whole = new Intl.NumberFormat("en");
const LETTERS = [[1e9, "G"], [1e6, "M"], [1e3, "k"]];

export function many(number) {
  const found = LETTERS.find(([size]) => Math.abs(number) >= size);
  if (!found || Math.abs(number) < 10_000) return whole.format(Math.round(number));
  const [size, letter] = found;
  return `${(number / size).toPrecision(3)}${letter}`;
}

export const exact = (number) => whole.format(number);

export const counted = (number, name) => `${exact(number)} ${name}${number === 1 ? "" : "s"}`;

// Small amounts are written to the hundredth of a cent, unless `digits` are given.
export function dollars(amount, digits) {
  if (amount === null || amount === undefined) return "not known";
  const size = Math.abs(amount);
  const wanted = digits ?? (size >= 100 ? 0 : size >= 0.1 || size === 0 ? 2 : 4);
  const sign = amount < 0 && size >= 0.5 * 10 ** -wanted ? "−" : "";
  return `${sign}$${size.toLocaleString("en", { minimumFractionDigits: wanted, maximumFractionDigits: wanted })}`;
}

// For columns.
export const cents = (amount) => (amount === null ? "–" : dollars(amount, 2));

export const percent = (share, digits = 0) =>
  share === null || share === undefined ? "not known" : `${(100 * share).toFixed(digits)} %`;

export const less = (raw, sent) => (raw ? percent(1 - sent / raw) : "–");

export function bytes(size) {
  if (size < 1024) return `${size} B`;
  return size < 1024 ** 2 ? `${(size / 1024).toFixed(1)} KiB` : `${(size / 1024 ** 2).toFixed(1)} MiB`;
}

export function ago(seconds, now = Date.now() / 1000) {
  const passed = Math.max(0, now - seconds);
  if (passed < 60) return "just now";
  if (passed < 3600) return `${Math.floor(passed / 60)} min ago`;
  if (passed < 86400) return `${Math.floor(passed / 3600)} h ago`;
  return `${Math.floor(passed / 86400)} d ago`;
}

const DAY = { day: "2-digit", month: "short" };
const MINUTE = { hour: "2-digit", minute: "2-digit" };
const written = (seconds, how) => new Date(seconds * 1000).toLocaleString("en-GB", how);

export const moment = (seconds) => written(seconds, { ...DAY, ...MINUTE, second: "2-digit" });

const clock = (seconds, span) => written(seconds, span > 2 * 86400 ? DAY : MINUTE);

// Whether a round hour or day in local time begins in this moment, which lasts `every` seconds, in a chart of `span`.
const STEPS = [600, 3600, 4 * 3600, 86400, 5 * 86400];
function isRound(seconds, every, span) {
  const step = STEPS.find((each) => span / each <= 8) ?? STEPS.at(-1);
  const wall = seconds - 60 * new Date(seconds * 1000).getTimezoneOffset();
  return wall % step < every;
}

// The label of a moment that lasts `every` seconds, and its tick if a round hour or day begins in it.
export const axis = (at, every, span, words) => ({
  label: `${span > 2 * 86400 ? `${clock(at, span)}, ` : ""}${clock(at, 0)}\n${words}`,
  tick: isRound(at, every, span) ? clock(at, span) : null,
});

// How long a request took.
export function seconds(value) {
  if (value === null || value === undefined) return "–";
  if (value < 0.01) return `${(1000 * value).toFixed(1)} ms`;
  if (value < 1) return `${(1000 * value).toFixed(0)} ms`;
  return value < 100 ? `${value.toPrecision(3).replace(/\.0+$/, "")} s` : `${(value / 60).toFixed(1)} min`;
}

// The time zone of all times on the pages: "Europe/Berlin (UTC+01:00)".
export function zone() {
  const minutes = -new Date().getTimezoneOffset();
  const two = (number) => String(Math.floor(number)).padStart(2, "0");
  const offset = `${minutes < 0 ? "−" : "+"}${two(Math.abs(minutes) / 60)}:${two(Math.abs(minutes) % 60)}`;
  return `${Intl.DateTimeFormat().resolvedOptions().timeZone} (UTC${offset})`;
}

// A number of seconds in words.
export function lasting(seconds) {
  if (seconds < 90) return `${Math.round(seconds)} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  return `${(seconds / 3600).toFixed(1)} h`;
}
