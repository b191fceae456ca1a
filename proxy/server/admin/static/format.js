// Figures and moments as people read them.

const whole = new Intl.NumberFormat("en");
const LETTERS = [[1e9, "G"], [1e6, "M"], [1e3, "k"]];

export function many(number) {
  const found = LETTERS.find(([size]) => Math.abs(number) >= size);
  if (!found || Math.abs(number) < 10_000) return whole.format(Math.round(number));
  const [size, letter] = found;
  return `${(number / size).toPrecision(3)}${letter}`;
}

export const exact = (number) => whole.format(number);

export function dollars(amount) {
  if (amount === null || amount === undefined) return "not known";
  const size = Math.abs(amount);
  const digits = size >= 100 ? 0 : size >= 0.1 || size === 0 ? 2 : 4;
  const sign = amount < 0 && size >= 0.00005 ? "−" : "";
  return `${sign}$${size.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits })}`;
}

export const percent = (share, digits = 0) =>
  share === null || share === undefined ? "not told" : `${(100 * share).toFixed(digits)} %`;

export const less = (raw, sent) => (raw ? percent(1 - sent / raw) : "–");

export function bytes(size) {
  return size < 1024 ? `${size} B` : size < 1024 ** 2 ? `${(size / 1024).toFixed(1)} KiB` : `${(size / 1024 ** 2).toFixed(1)} MiB`;
}

export function ago(seconds, now = Date.now() / 1000) {
  const passed = Math.max(0, now - seconds);
  if (passed < 60) return "just now";
  if (passed < 3600) return `${Math.floor(passed / 60)} min ago`;
  if (passed < 86400) return `${Math.floor(passed / 3600)} h ago`;
  return `${Math.floor(passed / 86400)} d ago`;
}

export const moment = (seconds) =>
  new Date(seconds * 1000).toLocaleString("en-GB", { day: "2-digit", month: "short", hour: "2-digit", minute: "2-digit", second: "2-digit" });

export const clock = (seconds, span) =>
  new Date(seconds * 1000).toLocaleString("en-GB", span > 2 * 86400 ? { day: "2-digit", month: "short" } : { hour: "2-digit", minute: "2-digit" });

// Some seconds, as a span that people name.
export function lasting(seconds) {
  if (seconds < 90) return `${Math.round(seconds)} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  return `${(seconds / 3600).toFixed(1)} h`;
}
