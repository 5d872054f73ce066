// Formats numbers with units.

export const {abs, atan2, ceil, cos, floor, hypot, log10, max, min, PI, round, sin, sqrt} = Math;

export const clamp = (x, low, high) => (x < low ? low : x > high ? high : x);

export const digits = (x, n = 3) =>
  x === 0 ? '0' : Number(x.toPrecision(n)).toLocaleString('en', {maximumFractionDigits: 9});

const TIMES = [
  ['s', 1],
  ['ms', 1e-3],
  ['µs', 1e-6],
  ['ns', 1e-9],
];
const SIZES = [
  ['GiB', 2 ** 30],
  ['MiB', 2 ** 20],
  ['KiB', 2 ** 10],
  ['B', 0],
];
const RATES = [
  ['Tbit/s', 1e12],
  ['Gbit/s', 1e9],
  ['Mbit/s', 1e6],
  ['kbit/s', 1e3],
  ['bit/s', 0],
];

const unitOf = (x, units) => units.find(([, least]) => x >= least * 0.9995) || units.at(-1);

const inUnit = (x, units) => {
  const [name, least] = unitOf(x, units);
  return `${digits(x / (least || 1))} ${name}`;
};

export const time = seconds => inUnit(seconds, TIMES);
export const size = bytes => inUnit(bytes, SIZES);
export const rate = bytes => inUnit(8 * bytes, RATES);

/** Formats a time in the unit and with the digits of the whole run, so that a running clock does not jump. */
export function clockTime(seconds, whole) {
  const [name, least] = unitOf(whole, TIMES);
  return `${(seconds / least).toFixed(max(0, 2 - floor(log10(whole / least))))} ${name}`;
}

export const percent = share => `${round(100 * share)} %`;
export const many = (n, one) => `${n.toLocaleString('en')} ${one}${n === 1 ? '' : 's'}`;
export const capital = words => words.charAt(0).toUpperCase() + words.slice(1);
export const ordered = (list, and = 'and') =>
  list.length < 2 ? list.join('') : `${list.slice(0, -1).join(', ')} ${and} ${list.at(-1)}`;
