// Positions on the stage: ranks, switches, links, buffers, and messages in flight.

import {abs, clamp, cos, floor, hypot, min, PI, sin, sqrt} from './format.js';
import {data, isRank, onWires, view} from './state.js';

const ROUND = ['circle', 'star', 'memory']; // layouts that may be wider than high

/** Returns whether buffers are drawn next to their ranks. For more ranks, a matrix is next to the stage. */
export const hasStrips = run => data.ranks <= 10 && Boolean(run.buffers);

function stripSize(pane) {
  if (pane.h > 330 && pane.w > 560) return [data.ranks > 8 ? 96 : 112, 38];
  return pane.w < 420 ? [58, 24] : [84, 30];
}

/** Returns the positions of one run on its pane of the stage, cached until its size, view or zoom changes. */
export function placesOf(run, pane) {
  const {scale, x, y} = view.zoom;
  const key = [pane.x, pane.y, pane.w, pane.h, view.kind, scale, x, y].join();
  if (run.placesKey === key) return run.places;
  run.placesKey = key;
  const strips = hasStrips(run),
    places = {pane, at: [], strips: [], lines: [], pairs: new Set()};
  places.matrix = !strips && run.buffers && pane.w > 500 ? min(pane.h - 60, pane.w * 0.36) : 0;
  places.size = stripSize(pane);
  measure(places, pane, strips);
  placeNodes(places, strips);
  if (strips) placeStrips(places);
  if (onWires()) placeLinks(places);
  else for (let i = 0; i < run.n; i++) places.pairs.add(run.c.src[i] * data.ranks + run.c.dst[i]);
  run.places = places;
  return places;
}

/** Sets the center of the area next to the matrix, and the radii of the ranks' ellipse. */
function measure(places, pane, strips) {
  const w = pane.w - (places.matrix ? places.matrix + 26 : 0),
    [sw, sh] = places.size;
  places.middle = [pane.x + w / 2, pane.y + pane.h / 2 + 8];
  places.rx = Math.max(40, w / 2 - (strips ? sw + 34 : 26));
  places.ry = Math.max(40, pane.h / 2 - (strips ? sh + 36 : 28));
  places.ring = min(places.rx, places.ry);
  places.wide = min(places.rx, places.ring * (strips ? 1.7 : 1.35));
}

function zoomed(places, x, y) {
  const [cx, cy] = places.middle,
    {scale} = view.zoom;
  return [cx + (x - cx) * scale + view.zoom.x, cy + (y - cy) * scale + view.zoom.y];
}

function placeNodes(places, strips) {
  const [cx, cy] = places.middle,
    {rx, ry, ring, wide} = places,
    p = data.ranks,
    wires = onWires();
  if (wires) {
    const isRound = ROUND.includes(data.layout),
      isRacks = data.layout === 'racks';
    const [w, h] = isRound ? [wide, ring] : [isRacks ? min(rx, ry * 2.4) : rx, ry];
    data.at.forEach((at, node) => {
      if (at) places.at[node] = zoomed(places, cx + (at[0] - 0.5) * 2 * w, cy + (at[1] - 0.5) * 2 * h);
    });
  } else {
    for (let rank = 0; rank < p; rank++) {
      const angle = -PI / 2 + (2 * PI * rank) / p;
      places.at[rank] = zoomed(places, cx + cos(angle) * wide, cy + sin(angle) * ring);
    }
  }
  const room = !wires ? (2 * PI * ring) / p : data.layout === 'grid' ? (2 * ry) / sqrt(p) : (2 * rx) / p;
  places.radius = strips ? 15 : clamp(0.36 * room * view.zoom.scale, 1.5, 11);
  places.round = wires ? 0 : ring * view.zoom.scale;
}

/** Places each buffer on the outer side of its rank. */
function placeStrips(places) {
  const [w, h] = places.size,
    [cx, cy] = zoomed(places, ...places.middle),
    racks = onWires() && data.layout === 'racks';
  for (let rank = 0; rank < data.ranks; rank++) {
    const [x, y] = places.at[rank],
      far = hypot(x - cx, y - cy) || 1;
    const dx = racks ? Math.sign(x - cx) : (x - cx) / far,
      dy = racks ? 0 : (y - cy) / far;
    const off = min((w / 2 + 4) / abs(dx || 1e-9), (h / 2 + 7) / abs(dy || 1e-9)) + 17;
    places.strips[rank] = [x + dx * off - w / 2, y + dy * off - h / 2, w, h];
  }
}

/** Places one line per link direction. Wrap-around links of a grid are bent. */
function placeLinks(places) {
  const columns = new Set(data.at.map(at => at && at[0])).size,
    aside = min(4, places.radius * 0.4);
  data.links.src.forEach((src, link) => {
    const dst = data.links.dst[link],
      begin = places.at[src],
      end = places.at[dst];
    if (!begin || !end) return;
    const far = hypot(end[0] - begin[0], end[1] - begin[1]) || 1;
    const ux = (end[0] - begin[0]) / far,
      uy = (end[1] - begin[1]) / far;
    const gap = node => min(isRank(node) ? places.radius : 8, far / 3),
      from = gap(src),
      to = gap(dst);
    const bow = data.layout === 'grid' && wraps(data.at[src], data.at[dst], columns) ? 10 : 0;
    places.lines[link] = [
      begin[0] + ux * from - uy * aside,
      begin[1] + uy * from + ux * aside,
      end[0] - ux * to - uy * aside,
      end[1] - uy * to + ux * aside,
      bow,
    ];
  });
}

const wraps = (one, other, columns) =>
  abs(one[0] - other[0]) > 1.5 / (columns - 1) || abs(one[1] - other[1]) > 1.5 / (data.ranks / columns - 1);

/** Returns the bend of the line between two ranks, which separates the two directions. */
export const bend = (far, places) =>
  places.round && far > 2.4 * places.round * sin(PI / data.ranks) ? -min(16, far * 0.06) : 0;

/** Returns the point at a fraction of a bent line, and the direction perpendicular to it. */
function along([x1, y1, x2, y2, bow], share) {
  const far = hypot(x2 - x1, y2 - y1) || 1,
    nx = (y1 - y2) / far,
    ny = (x2 - x1) / far;
  const out = bow * 4 * share * (1 - share);
  return [x1 + (x2 - x1) * share + nx * out, y1 + (y2 - y1) * share + ny * out, nx, ny];
}

/** Returns the straight line between the edges of two ranks' circles. */
export function talkLine(places, src, dst) {
  const [x1, y1] = places.at[src],
    [x2, y2] = places.at[dst],
    far = hypot(x2 - x1, y2 - y1) || 1;
  const rim = min(places.radius, far / 2) / far,
    dx = (x2 - x1) * rim,
    dy = (y2 - y1) * rim;
  return [x1 + dx, y1 + dy, x2 - dx, y2 - dy, bend(far, places)];
}

/**
 * Where a message is at a share of its way: on its route, or between its ranks; null where a link is not shown. It
 * begins and ends beside its ranks, so that it covers none of their numbers.
 */
export function whereIs(run, places, i, share) {
  const route = onWires() ? run.routes[run.c.route[i]] : [];
  const lines = route.length
    ? route.map(link => places.lines[link])
    : [talkLine(places, run.c.src[i], run.c.dst[i])];
  if (lines.includes(undefined)) return null;
  const lengths = lines.map(([x1, y1, x2, y2]) => hypot(x2 - x1, y2 - y1)),
    whole = lengths.reduce((sum, length) => sum + length, 0),
    beside = min(places.strips.length ? 21 : places.radius * 0.75, whole / 3);
  let left = beside + share * (whole - 2 * beside),
    at = 0;
  while (at < lines.length - 1 && left > lengths[at]) left -= lengths[at++];
  return along(lines[at], clamp(left / (lengths[at] || 1), 0, 1));
}

export const pairOf = key => [floor(key / data.ranks), key % data.ranks];
