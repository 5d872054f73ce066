// The lanes of many ranks: each row of pixels is one or several ranks, and is dark while its busiest rank receives.

import {clipTo, write} from './canvas.js';
import {color, mix} from './colors.js';
import {floor, max, percent, round, time} from './format.js';
import {firstOf} from './groups.js';
import {data, view} from './state.js';

const MOST_SHOWN = 128; // rows, unless a group is open

/** Returns the rows to show: `count` rows of `ranks` ranks each, starting at `first`. */
export function rowsOf(run) {
  const {sizes, rows} = run.aggregate,
    whole = data.ranks / rows;
  if (view.group >= 0) {
    const words = `ranks of ${run.aggregate.groups[view.group]}: dark while it receives`;
    return {first: firstOf(sizes, view.group), count: sizes[view.group], ranks: 1, whole, words};
  }
  const count = Math.min(rows, MOST_SHOWN);
  const words = 'a row is several ranks: dark while its busiest rank receives';
  return {first: 0, count, ranks: data.ranks / count, whole, words};
}

/** Returns the share of a bin during which a row's busiest rank receives, from 0 to 255. */
export function busiest(run, row, bin) {
  const {most, bins} = run.aggregate,
    shown = rowsOf(run);
  const from = floor((shown.first + row * shown.ranks) / shown.whole);
  const to = max(from + 1, floor((shown.first + (row + 1) * shown.ranks) / shown.whole));
  let share = 0;
  for (let at = from; at < to; at++) share = max(share, most[at * bins + bin]);
  return share;
}

export function paintHeat(g, box, toPixel) {
  const {run} = box,
    {bins} = run.aggregate,
    {first, count, ranks} = rowsOf(run);
  const image = new ImageData(bins, count),
    dark = `#${mix(color.go, color.ink, 0.5).map(hex).join('')}`;
  const shades = Array.from({length: 256}, (_, value) => mix(color.paper, dark, (value / 255) ** 1.3));
  for (let row = 0; row < count; row++) {
    for (let bin = 0; bin < bins; bin++) {
      image.data.set([...shades[busiest(run, row, bin)], 255], 4 * (row * bins + bin));
    }
  }
  const picture = new OffscreenCanvas(bins, count);
  picture.getContext('2d').putImageData(image, 0, 0);
  const every = max(1, round(count / 8)),
    left = toPixel(box, 0);
  for (let row = 0; row < count; row += every) {
    write(g, String(round(first + row * ranks)), box.x - 8, box.y + (row + 0.5) * box.lane, 10.5, color.grey, 'right');
  }
  clipTo(g, box.x, box.y, box.w, box.h);
  g.imageSmoothingEnabled = false;
  g.drawImage(picture, left, box.y, toPixel(box, run.elapsed) - left, box.h);
}

const hex = value => value.toString(16).padStart(2, '0');

export function aboutRow(run, row, bin) {
  const {first, ranks} = rowsOf(run),
    from = round(first + row * ranks),
    to = round(first + (row + 1) * ranks) - 1;
  const who = to > from ? `ranks ${from}–${to}\nthe busiest receives` : `rank ${from}\nreceives`;
  return `${who} ${percent(busiest(run, row, bin) / 255)} of these ${time(run.elapsed / run.aggregate.bins)}`;
}
