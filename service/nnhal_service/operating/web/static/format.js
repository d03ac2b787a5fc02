// Numbers and times as text, with units.

const NUMBER = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const COMPACT = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

/** Three significant digits, without trailing zeros. */
function digits(value) {
  return String(Number(value.toPrecision(3)));
}

export function count(value) {
  return NUMBER.format(value);
}

export function compact(value) {
  return Math.abs(value) < 10000 ? NUMBER.format(value) : COMPACT.format(value);
}

export function bytes(value) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let index = 0;
  while (Math.abs(value) >= 1024 && index < units.length - 1) {
    value /= 1024;
    index += 1;
  }
  return `${index ? digits(value) : Math.round(value)} ${units[index]}`;
}

/** A short duration, such as that of an execution. */
export function seconds(value) {
  if (value === 0) return "0 s";
  if (value >= 1) return `${digits(value)} s`;
  if (value >= 1e-3) return `${digits(value * 1e3)} ms`;
  return `${digits(value * 1e6)} µs`;
}

export function rate(value) {
  return `${value >= 1000 ? compact(Math.round(value)) : digits(value)} /s`;
}

/** A long duration, such as an age, in its two largest units. */
export function age(value) {
  value = Math.max(Math.round(value), 0);
  const units = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];
  const first = units.findIndex(([, size]) => value >= size);
  if (first < 0) return "0 s";
  return units
    .slice(first, first + 2)
    .map(([unit, size], index) => [Math.floor(index ? (value % units[first][1]) / size : value / size), unit])
    .filter(([amount], index) => amount || !index)
    .map(([amount, unit]) => `${amount} ${unit}`)
    .join(" ");
}

/** Date and time in the zone of the reader. */
export function time(at) {
  return new Date(at * 1000).toLocaleString("sv-SE");
}

/** Date and time with the offset of the zone, for tooltips. */
export function exactTime(at) {
  const offset = -new Date(at * 1000).getTimezoneOffset();
  const sign = offset < 0 ? "-" : "+";
  const two = (number) => String(Math.floor(number)).padStart(2, "0");
  return `${time(at)} ${sign}${two(Math.abs(offset) / 60)}:${two(Math.abs(offset) % 60)}`;
}

export function share(part, whole) {
  return whole ? `${digits((100 * part) / whole)} %` : "–";
}

/** The beginning of a digest; the whole of it belongs into the title. */
export function digest(text) {
  return text.length > 12 ? `${text.slice(0, 12)}…` : text;
}
