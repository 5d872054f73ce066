// Vermilion is reserved for the bottleneck link and for failures. Chunks and training phases have other colors.

import {round} from './format.js';

const NINE = ['#4477aa', '#66b8d8', '#228855', '#a3b324', '#d6a92b', '#aa3377', '#e58fa8', '#3fb3a0', '#8d78cf'];
const PHASES = {
  forward: '#66b8d8',
  backward: '#4477aa',
  optimizer: '#228855',
  sync: '#d6a92b',
  compute: '#e58fa8',
};
const NAMES = ['ink', 'grey', 'faint', 'pane', 'paper', 'full', 'go', 'cell', 'link'];

/** Colors of the page by name; player.css sets them. */
export const color = {};

export function readColors() {
  const style = getComputedStyle(document.documentElement);
  for (const name of NAMES) color[name] = style.getPropertyValue(`--${name}`).trim();
}

export const chunkColors = count =>
  count <= 9
    ? NINE
    : Array.from({length: count}, (_, i) => {
        const share = i / (count - 1);
        return `hsl(${round(275 - 225 * share)} 52% ${round(40 + 18 * share)}%)`;
      });

/** Returns the color of a span. Gradient buckets alternate between two shades of gold; calls that wait are pale. */
export function phaseColor(name) {
  const bucket = /bucket\D*(\d+)/.exec(name);
  return bucket ? ['#d6a92b', '#b98d14'][bucket[1] % 2] : PHASES[name] || color.link;
}

/** Returns the color of text on a phase. */
export const wordsOn = name => (phaseColor(name) === color.link ? color.ink : '#10151f');

export const isSync = name => name === 'sync' || name.includes('bucket');

const rgb = hex => [1, 3, 5].map(at => parseInt(hex.slice(at, at + 2), 16));
export const mix = (one, other, share) => {
  const to = rgb(other);
  return rgb(one).map((value, i) => round(value + (to[i] - value) * share));
};
