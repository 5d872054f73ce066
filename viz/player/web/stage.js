// Draws the stage: one pane per run, with its network, ranks, buffers and messages.

import {buffersAt, completeness, drawChunk, shareOf} from './buffers.js';
import {area, clear, clipTo, cross, dot, fade, line, pen, slab, widthOf, write} from './canvas.js';
import {activeAt, beginsOf, endsOf, isOver, isTimed, lengthOf, total, watchingSeconds} from './clock.js';
import {color} from './colors.js';
import {ceil, clamp, floor, max, min, round, size, sqrt, time} from './format.js';
import {drawGroups} from './groups.js';
import {drawCallout, drawLinks, drawPairs, drawRanks, drawSwitches} from './network.js';
import {hasStrips, placesOf, whereIs} from './places.js';
import {carriedBy, hueOf, isComplete} from './run.js';
import {calm, data, find, isFar, isRacing, onWires, shownRuns, view} from './state.js';
import {phaseWords} from './words.js';

const FRESH = 0.35; // seconds for which a chunk that has changed is underlined
const MOST_DRAWN = 1500; // messages at once

/** Objects under the pointer: messages as {x, y, radius, run, index}, and the pane of each run. */
export const onStage = {tokens: [], panes: []};

export function drawStage() {
  const [g, w, h] = clear(find('stage')),
    runs = shownRuns(),
    n = runs.length,
    stacked = w < 620 && n > 1;
  onStage.tokens = [];
  onStage.panes = runs.map((run, i) =>
    stacked ? {x: 0, y: (i * h) / n, w, h: h / n} : {x: (i * w) / n, y: 0, w: w / n, h},
  );
  runs.forEach((run, i) => {
    const pane = onStage.panes[i];
    if (i) area(g, color.faint, pane.x, pane.y + (stacked ? 0 : 8), stacked ? w : 1, stacked ? 1 : h - 16);
    g.save();
    clipTo(g, pane.x, pane.y, pane.w, pane.h);
    if (run.aggregate) drawGroups(g, pane, run);
    else drawPane(g, pane, run);
    g.restore();
  });
}

function drawPane(g, pane, run) {
  const places = placesOf(run, pane),
    x = min(view.x, lengthOf(run));
  const active = activeAt(run, x),
    cells = buffersAt(run, x);
  if (onWires()) {
    drawLinks(g, run, places, active);
    drawSwitches(g, places);
  } else {
    drawPairs(g, places);
  }
  drawWaits(g, run, places, x);
  drawRanks(g, run, places);
  if (hasStrips(run)) drawStrips(g, run, places, cells, x);
  const drawn = drawMessages(g, run, places, active, x);
  drawFailures(g, run, places, x);
  if (onWires()) drawCallout(g, run, places);
  if (places.matrix) drawMatrix(g, run, places, cells);
  writeOnPane(g, run, places, active, drawn);
}

/** Draws each rank's buffer. A chunk that has just changed is underlined; a complete buffer has a check mark. */
function drawStrips(g, run, places, cells, x) {
  const n = run.chunks,
    second = total() / watchingSeconds(),
    {wanted} = run.buffers;
  places.strips.forEach(([left, top, w, h], rank) => {
    let isDone = wanted.subarray(rank * n, rank * n + n).some(bits => bits);
    for (let chunk = 0, width = w / n; chunk < n; chunk++) {
      const cell = rank * n + chunk,
        at = left + chunk * width,
        age = (x - run.changed[cell]) / second;
      drawChunk(g, run, [at + 0.5, top, width - 1, h], chunk, cells[cell]);
      if (wanted[cell] && !isComplete(cells[cell])) isDone = false;
      if (run.changed[cell] >= 0 && age < FRESH && !isOver(run)) {
        fade(g, 1 - age / FRESH);
        area(g, color.ink, at, top + h + 1, width, 3);
        fade(g, 1);
      }
    }
    if (isDone) tick(g, left + w / 2, top + h / 2);
  });
}

function tick(g, x, y) {
  pen(g, color.paper, 3);
  g.beginPath();
  for (const [dx, dy] of [
    [-7, 0],
    [-2, 5],
    [7, -6],
  ])
    g.lineTo(x + dx, y + dy);
  g.stroke();
}

/** Draws messages in flight. Messages that would cover each other are placed side by side. */
function drawMessages(g, run, places, active, x) {
  const begins = beginsOf(run),
    ends = endsOf(run),
    taken = new Map(),
    every = max(1, active.length / MOST_DRAWN);
  const strips = hasStrips(run);
  let drawn = 0;
  for (let q = 0; q < active.length; q += every) {
    const i = active[floor(q)],
      share = calm ? 0.5 : (x - begins[i]) / (ends[i] - begins[i] || 1);
    const at = whereIs(run, places, i, share);
    if (!at) continue;
    const spot = round(at[0] / 12) * 4096 + round(at[1] / 12),
      beside = strips ? taken.get(spot) || 0 : 0;
    taken.set(spot, beside + 1);
    const token = {x: at[0] + at[2] * 15 * beside, y: at[1] + at[3] * 15 * beside, run, index: i};
    fade(g, isFar(run, i) ? 0.2 : 1);
    token.radius = strips ? drawParcel(g, run, places, token) : drawDot(g, run, places, token);
    onStage.tokens.push(token);
    drawn++;
  }
  fade(g, 1);
  ringHovered(g, run);
  return drawn;
}

/** Draws a message as its chunks; its width shows its bytes. */
function drawParcel(g, run, places, {x, y, index}) {
  const [strip, h] = places.size,
    {bytes, chunk, count} = run.c;
  const w = max(7, strip * min(1, bytes[index] / (run.nbytes || bytes[index]))),
    each = w / count[index];
  const rim = onWires() && run.crosses[index] ? color.full : color.ink;
  slab(g, x - w / 2 - 2.5, y - h / 2 - 2.5, w + 5, h + 5, 3, color.paper, rim, 1.4);
  for (let at = 0; at < count[index]; at++) {
    drawChunk(g, run, [x - w / 2 + at * each, y - h / 2, each, h], chunk[index] + at, carriedBy(run, index, at));
  }
  return max(w, h) / 2 + 4;
}

function drawDot(g, run, places, {x, y, index}) {
  const radius = clamp(max(places.radius, 5) * 0.75 * sqrt(run.c.bytes[index] / run.mostBytes), 1.4, 7);
  const isHot = onWires() && run.crosses[index];
  dot(
    g,
    x,
    y,
    radius,
    hueOf(run, run.c.chunk[index]),
    radius > 3 ? (isHot ? color.full : color.paper) : null,
    isHot ? 2 : 1,
  );
  return radius + 3;
}

function ringHovered(g, run) {
  if (view.hover?.run !== run) return;
  const token = onStage.tokens.find(one => one.run === run && one.index === view.hover.index);
  if (token) dot(g, token.x, token.y, token.radius + 4, null, color.go, 2.5);
}

/** Draws a line from a rank that waits forever towards its peer; the line does not reach the peer. */
function drawWaits(g, run, places, x) {
  if (!isTimed()) return;
  g.setLineDash([5, 4]);
  for (const [rank, peer, , , since] of run.unfinished) {
    if (x < since) continue;
    const [x1, y1] = places.at[rank],
      [x2, y2] = places.at[peer];
    const end = [x1 + (x2 - x1) * 0.42, y1 + (y2 - y1) * 0.42];
    pen(g, color.full, 2);
    line(g, x1, y1, ...end);
    dot(g, ...end, 4, color.paper, color.full, 2);
  }
  g.setLineDash([]);
}

function drawFailures(g, run, places, x) {
  if (!isTimed()) return;
  for (const [rank, at] of run.failed) {
    if (x < at) continue;
    pen(g, color.full, 4);
    cross(g, ...places.at[rank], places.radius + 3);
  }
}

/** Draws the buffers of more ranks as a matrix: one row per rank, one column per chunk. */
function drawMatrix(g, run, places, cells) {
  const {matrix, pane} = places,
    n = run.chunks,
    p = data.ranks;
  const left = pane.x + pane.w - matrix - 14,
    top = pane.y + 44,
    w = matrix / n,
    h = min(matrix, pane.h - 66) / p;
  write(g, 'Buffers', left, top - 27, 13, color.ink, 'left', true);
  const full = run.hasSums ? `sum of all ${p}` : 'complete';
  write(g, `row: rank   column, color: chunk   full: ${full}`, left, top - 11, 11, color.grey);
  for (let rank = 0, every = ceil(11 / h); rank < p; rank += every) {
    write(g, String(rank), left - 5, top + (rank + 0.5) * h, 9.5, color.grey, 'right');
  }
  for (let cell = 0; cell < cells.length; cell++) {
    const chunk = cell % n,
      box = [left + chunk * w, top + floor(cell / n) * h, w, h];
    if (w * devicePixelRatio < 4) {
      fade(g, isComplete(cells[cell]) ? 1 : 0.08 + 0.5 * shareOf(run, cells[cell]));
      area(g, hueOf(run, chunk), box[0], box[1], ceil(w), ceil(h));
    } else {
      drawChunk(g, run, [box[0], box[1], w - (w > 5 ? 1 : 0.4), h - (h > 5 ? 1 : 0.4)], chunk, cells[cell]);
    }
  }
  fade(g, 1);
  if (view.rank >= 0) {
    pen(g, color.go, 2);
    g.strokeRect(left - 1, top + view.rank * h - 1, matrix + 2, h + 1);
  }
}

function writeOnPane(g, run, places, active, drawn) {
  const {pane} = places,
    bottom = pane.y + pane.h - 12,
    over = isOver(run);
  if (isRacing()) {
    write(g, run.name, pane.x + 16, pane.y + 16, 16, color.ink, 'left', true);
    const words = over ? `done in ${time(run.elapsed)}` : `${time(run.elapsed)} in all`;
    write(g, words, pane.x + 16, pane.y + 35, 12, over ? color.go : color.grey, 'left', over);
  }
  if (!onWires() && places.round > 70 && view.zoom.scale === 1) writePhase(g, places, ...phaseWords(run, active));
  const hasRoom = pane.w > 860 && !isRacing() && !onWires(); // otherwise, the legend is text above the stage
  if (hasStrips(run) && run.buffers.exact && hasRoom) drawLegend(g, run, pane);
  const notes = onWires() && !isRacing() ? [aboutWires(run, over, pane)] : [];
  if (drawn < active.length) notes.push(`${drawn} of ${active.length} messages are shown.`);
  else if (data.hidden && onWires()) notes.push(`${data.hidden} idle parts are hidden.`);
  write(g, notes.join(' '), pane.x + 14, isRacing() ? bottom : pane.y + 14, 11, color.grey);
}

function aboutWires(run, isOver, pane) {
  const words = `The network; links are thick ${isOver ? 'if they carried much' : 'while in use'}.`;
  return pane.w < 480 ? words : `${words} “Show traffic” shows ${run.isRing ? 'the ring' : 'the pairs of ranks'}.`;
}

function writePhase(g, places, head, words) {
  const [x, y] = places.middle,
    half = max(widthOf(g, head, 17), 110) / 2 + 10;
  if (!head) return;
  fade(g, 0.85);
  slab(g, x - half, y - 24, 2 * half, 50, 10, color.paper);
  fade(g, 1);
  write(g, head, x, y - 9, 17, color.ink, 'center', true);
  write(g, words, x, y + 13, 12.5, color.grey, 'center');
}

function drawLegend(g, run, pane) {
  const w = run.chunks > 1 ? 12 : 30,
    rows = legendRows(g, run, pane.x + 16, w),
    top = pane.y + pane.h - 8 - 33 * rows.length;
  rows.forEach(([draw, ...words], at) => {
    const y = top + 33 * at,
      first = y + 19 - 7 * words.length;
    draw(y);
    words.forEach((line, i) => write(g, line, pane.x + 25 + w, first + 14 * i, 11, color.grey));
  });
}

/** Returns the legend's rows: a function that draws a glyph at a height, and its meaning in one or two lines. */
function legendRows(g, run, x, w) {
  const who = data.ranks > 2 ? 'ranks 0 and 2 are' : 'rank 0 is',
    stripes = run.hasSums
      ? [`stripes: ${who} in the`, `sum so far; it stays ${size(run.nbytes / run.chunks)}`]
      : [`stripes: whose data is in, here ${data.ranks > 2 ? '0 and 2' : '0'}`];
  const colors = y => {
    for (let i = 0; i < 4; i++) area(g, hueOf(run, i), x + (i * w) / 4, y + 4, w / 4, 16);
  };
  return [
    ...(run.chunks > 1 ? [[colors, `a color: one of ${run.chunks} chunks`]] : []),
    [y => drawChunk(g, run, [x, y, w, 24], 0, data.ranks > 2 ? 0b101 : 1), ...stripes],
    [y => area(g, hueOf(run, 0), x, y, w, 24), run.hasSums ? `full: the sum of all ${data.ranks} ranks` : 'complete'],
    [y => slab(g, x - 2, y + 1, w + 4, 22, 3, null, color.ink, 1.4), 'a message in flight'],
  ];
}

export const isWhole = (run, cells) => {
  const {wanted, complete} = completeness(run, cells);
  return wanted > 0 && complete === wanted;
};
