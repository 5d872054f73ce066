// Draws the links, or the pairs of ranks that communicate, below the messages.

import {dot, fade, label, line, pen, slab, widthOf, write} from './canvas.js';
import {isOver} from './clock.js';
import {color} from './colors.js';
import {atan2, ceil, clamp, cos, hypot, min, percent, rate, round, sin} from './format.js';
import {pairOf, talkLine} from './places.js';
import {data, isRank, view} from './state.js';

const CHOSEN = 100,
  STANDS_OUT = 200; // added to the shade of a link, from 0 to 8

function trace(path, [x1, y1, x2, y2, bow]) {
  path.moveTo(x1, y1);
  const far = hypot(x2 - x1, y2 - y1) || 1,
    out = (2 * bow) / far;
  if (bow) path.quadraticCurveTo((x1 + x2) / 2 + (y1 - y2) * out, (y1 + y2) / 2 + (x2 - x1) * out, x2, y2);
  else path.lineTo(x2, y2);
}

/** Returns the current utilization of each link, and its number of messages. */
function loadsOf(run, active) {
  const loads = new Map();
  for (const i of active) {
    const speed = run.c.bytes[i] / Math.max(run.end[i] - run.begin[i], 1e-15);
    for (const link of run.routes[run.c.route[i]]) {
      const load = loads.get(link) || {share: 0, count: 0};
      load.share += speed / (data.links.bandwidth[link] || Infinity);
      load.count++;
      loads.set(link, load);
    }
  }
  return loads;
}

/** Draws links darker and wider with their use. Links of a shade share one path, because strokes are expensive. */
export function drawLinks(g, run, places, active) {
  const loads = loadsOf(run, active),
    thin = data.links.src.length > 300 ? 0.7 : 1.5,
    shades = new Map();
  if (!places.idle) {
    places.idle = new Path2D();
    places.lines.forEach(ends => trace(places.idle, ends));
  }
  pen(g, color.link, thin);
  g.stroke(places.idle);
  places.lines.forEach((ends, link) => {
    const now = isOver(run) ? run.use[link] : loads.get(link)?.share || 0;
    const use = run.isSlow && run.bad.has(link) ? 1 : clamp(now, 0, 1);
    if (use <= 0.005 && link !== view.link) return;
    const shade = (run.bad.has(link) ? STANDS_OUT : link === view.link ? CHOSEN : 0) + ceil(use * 8);
    if (!shades.has(shade)) shades.set(shade, new Path2D());
    trace(shades.get(shade), ends);
  });
  for (const [shade, path] of shades) strokeShade(g, shade, path, thin);
  fade(g, 1);
  if (thin > 1)
    for (const [link, load] of loads) if (load.count > 1 && load.share > 0.9) writeSharers(g, run, places, link, load);
}

function strokeShade(g, shade, path, thin) {
  const use = (shade % CHOSEN) / 8,
    kind = shade - (shade % CHOSEN);
  pen(
    g,
    kind === STANDS_OUT ? color.full : kind === CHOSEN ? color.go : color.ink,
    thin + (thin > 1 ? 3.5 : 1.2) * use,
  );
  fade(g, kind === STANDS_OUT ? 0.45 + 0.55 * use : kind === CHOSEN ? 1 : 0.12 + 0.5 * use);
  g.stroke(path);
}

function writeSharers(g, run, places, link, load) {
  if (!places.lines[link]) return;
  const [x1, y1, x2, y2] = places.lines[link],
    far = hypot(x2 - x1, y2 - y1) || 1;
  const x = (x1 + x2) / 2 + ((y1 - y2) / far) * 11,
    y = (y1 + y2) / 2 + ((x2 - x1) / far) * 11;
  write(g, `${load.count} share`, x, y, 10, run.bad.has(link) ? color.full : color.grey, 'center', true);
}

/** Draws switches and other parts, with their names if there is room. */
export function drawSwitches(g, places) {
  const room = roomBetween(places);
  places.at.forEach(([x, y], node) => {
    if (isRank(node)) return;
    const name = data.nodes[node].replace(/^n\d+\./, '').slice(0, 7);
    const w = min(room - 3, name.length > 4 ? 44 : 30);
    const isNamed = w >= 6 * name.length;
    if (isNamed) slab(g, x - w / 2, y - 10, w, 20, 6, color.paper, color.grey, 1.2);
    else slab(g, x - 5, y - 4, 10, 8, 3, color.paper, color.grey, 1.2);
    if (isNamed) write(g, name, x, y + 0.5, 10, color.grey, 'center');
  });
}

/** Returns the smallest distance between two neighbors in a row that are not ranks. */
function roomBetween(places) {
  if (places.room) return places.room;
  const rows = new Map();
  places.at.forEach(([x, y], node) => {
    if (!isRank(node)) rows.set(round(y), [...(rows.get(round(y)) || []), x]);
  });
  places.room = 60;
  for (const row of rows.values()) {
    row
      .sort((a, b) => a - b)
      .forEach((x, i) => {
        if (i) places.room = min(places.room, x - row[i - 1]);
      });
  }
  return places.room;
}

/** Draws a line for each pair of ranks that communicates, with an arrowhead towards the receiver. */
export function drawPairs(g, places) {
  if (places.pairs.size > 4000) return;
  if (!places.talk) {
    places.talk = new Path2D();
    for (const key of places.pairs) trace(places.talk, talkLine(places, ...pairOf(key)));
  }
  pen(g, color.link, data.ranks > 64 ? 0.6 : 1.3);
  g.stroke(places.talk);
  g.fillStyle = color.link;
  if (data.ranks <= 40) for (const key of places.pairs) drawHead(g, talkLine(places, ...pairOf(key)));
}

function drawHead(g, [x1, y1, x2, y2, bow]) {
  const far = hypot(x2 - x1, y2 - y1) || 1,
    share = 0.56,
    out = bow * 4 * share * (1 - share),
    turn = atan2(y2 - y1, x2 - x1);
  const x = x1 + (x2 - x1) * share + ((y1 - y2) / far) * out,
    y = y1 + (y2 - y1) * share + ((x2 - x1) / far) * out;
  g.beginPath();
  for (const [angle, reach] of [
    [0, 6],
    [2.4, 4],
    [-2.4, 4],
  ])
    g.lineTo(x + reach * cos(turn + angle), y + reach * sin(turn + angle));
  g.fill();
}

export function drawRanks(g, run, places) {
  for (let rank = 0; rank < data.ranks; rank++) {
    const [x, y] = places.at[rank],
      {radius} = places;
    fade(g, view.rank >= 0 && view.rank !== rank ? 0.4 : 1);
    dot(g, x, y, radius, color.ink);
    if (radius >= 6) write(g, String(rank), x, y + 0.5, min(13, radius * 1.1), color.paper, 'center', true);
    if (view.rank === rank) dot(g, x, y, radius + 4, null, color.go, 3);
  }
  fade(g, 1);
}

/** Labels the bottleneck link. */
export function drawCallout(g, run, places) {
  const cable = run.standing[0],
    ends = cable && places.lines[cable.links[0]];
  if (!ends) return;
  const x = (ends[0] + ends[2]) / 2,
    y = (ends[1] + ends[3]) / 2,
    {pane} = places;
  const words = run.isSlow
    ? `${rate(cable.peak * cable.bandwidth)} instead of ${rate(cable.bandwidth)}`
    : `${rate(cable.bandwidth)}, ${percent(cable.use)} used`;
  const half = widthOf(g, words, 12) / 2 + 12,
    right = pane.x + pane.w - (places.matrix ? places.matrix + 34 : 0);
  const to = [clamp(x, pane.x + half, right - half), clamp(y + 37, pane.y + 16, pane.y + pane.h - 18)];
  pen(g, color.full, 1.4);
  line(g, x, y + 6, to[0], to[1]);
  label(g, words, ...to, color.full, color.paper);
}
