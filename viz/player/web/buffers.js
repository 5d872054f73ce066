// Buffer contents, and the glyph of a chunk: one slot per rank from top to bottom, filled if the rank contributed.

import {area, fade} from './canvas.js';
import {endsOf, total} from './clock.js';
import {color} from './colors.js';
import {bitsIn, contributors, hueOf, isComplete} from './run.js';
import {data, view} from './state.js';
import {max} from './format.js';

/** Returns all cells at a time, and sets `run.changed` to the time of each cell's last change; null if unknown. */
export function buffersAt(run, x) {
  if (!run.buffers) return null;
  const order = run.order[view.clock],
    {message, cell, value, start} = run.buffers,
    ends = endsOf(run);
  if (!run.cells || run.cellsClock !== view.clock || x < run.cellsX) {
    run.cells = Int32Array.from(start);
    run.changed = new Float64Array(start.length).fill(-1);
    run.next = 0;
  }
  const until = x + total() * 1e-9;
  while (run.next < order.length && ends[message[order[run.next]]] <= until) {
    const change = order[run.next++];
    run.cells[cell[change]] = value[change];
    run.changed[cell[change]] = ends[message[change]];
  }
  run.cellsClock = view.clock;
  run.cellsX = x;
  return run.cells;
}

/** Returns the number of cells that the collective defines, and how many are complete. */
export function completeness(run, cells) {
  let wanted = 0,
    complete = 0;
  run.buffers.wanted.forEach((bits, i) => {
    if (bits) wanted++;
    if (isComplete(cells[i])) complete++;
  });
  return {wanted, complete};
}

export function drawChunk(g, run, box, chunk, held, ground = color.cell) {
  const [x, y, w, h] = box,
    hue = hueOf(run, chunk);
  area(g, ground, x, y, w, h);
  if (isComplete(held)) return area(g, hue, x, y, w, h);
  const who = contributors(held);
  if (run.buffers.exact) {
    const slot = h / data.ranks;
    for (let rank = 0; rank < data.ranks; rank++) {
      if ((who >> rank) & 1) area(g, hue, x, y + rank * slot + 0.35, w, max(1, slot - 0.7));
    }
  } else {
    const filled = (h * who) / data.ranks;
    fade(g, 0.6);
    area(g, hue, x, y + h - filled, w, filled);
    fade(g, 1);
  }
}

/** Returns the share of contributors in a chunk, from 0 to 1. */
export const shareOf = (run, held) =>
  isComplete(held) ? 1 : (run.buffers.exact ? bitsIn(contributors(held)) : contributors(held)) / data.ranks;
