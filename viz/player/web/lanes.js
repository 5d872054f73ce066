// Draws a lane per rank over time: receives, sends and computing. All runs share one time axis.

import {area, clear, clipTo, cross, dot, fade, line, pen, widthOf, write} from './canvas.js';
import {beginsOf, endsOf, isStuckAtOnce, isTimed, lengthOf, reach} from './clock.js';
import {color, isSync, phaseColor, wordsOn} from './colors.js';
import {aboutRows, detailOf, paintDetail} from './detail.js';
import {ceil, clamp, floor, log10, max, min, round, time} from './format.js';
import {paintHeat, rowsOf} from './heat.js';
import {hueOf} from './run.js';
import {data, find, isFar, isRacing, onWires, partner, shownRuns, view} from './state.js';

export const GUTTER = 66;
export const RULER = 20;
const GAP = 18,
  RIGHT = 16,
  MOST_LINES = 1600;

/** Returns each run's area and the height of its lanes. */
export const onLanes = {boxes: []};

let painted = null,
  paintedFor = '';
export const repaint = () => {
  paintedFor = '';
};

function boxes(w, h) {
  const runs = shownRuns(),
    rows = runs.map(run => (run.aggregate ? 64 : data.ranks));
  const all = rows.reduce((sum, one) => sum + one, 0),
    room = h - RULER - 4 - GAP * runs.length;
  let y = RULER + GAP;
  return runs.map((run, i) => {
    const height = (room * rows[i]) / all,
      count = run.aggregate ? detailOf(run)?.peers.length || rowsOf(run).count : data.ranks;
    const box = {run, x: GUTTER, y, w: w - GUTTER - RIGHT, h: height, lane: height / count};
    y += height + GAP;
    return box;
  });
}

export const toPixel = (box, x) => box.x + ((x / reach() - view.from) / (view.to - view.from)) * box.w;
export const fromPixel = (box, px) => (((px - box.x) / box.w) * (view.to - view.from) + view.from) * reach();

export function drawLanes() {
  const canvas = find('lanes'),
    [g, w, h] = clear(canvas);
  if (w < 1 || h < 1) return; // the window is too small for lanes, or they are hidden
  onLanes.boxes = boxes(w, h);
  paintOnce(canvas, w);
  g.drawImage(painted, 0, 0, w, h);
  const box = onLanes.boxes[0],
    now = toPixel(box, view.x),
    from = clamp(now, box.x, box.x + box.w);
  fade(g, 0.58);
  area(g, color.paper, from, RULER, box.x + box.w - from + 14, h - RULER);
  fade(g, 1);
  for (const each of onLanes.boxes) writeAbove(g, each, w);
  drawRuler(g, box);
  outlineHovered(g);
  if (now < box.x - 1 || now > box.x + box.w + 1) return;
  area(g, color.go, now - 1, RULER - 4, 2, h - RULER + 4);
  g.beginPath();
  for (const [dx, y] of [
    [-6, RULER - 10],
    [6, RULER - 10],
    [0, RULER - 2],
  ])
    g.lineTo(now + dx, y);
  g.fill();
}

/** Paints everything that does not move into an off-screen canvas, once per zoom and selection. */
function paintOnce(canvas, w) {
  const {width, height} = canvas;
  const key = [
    width,
    height,
    view.from,
    view.to,
    view.shown,
    view.clock,
    view.path,
    view.rank,
    view.group,
    view.kind,
    color.paper,
  ].join();
  if (key === paintedFor) return;
  painted ||= document.createElement('canvas');
  painted.width = width;
  painted.height = height;
  const g = painted.getContext('2d');
  g.setTransform(width / w, 0, 0, width / w, 0, 0);
  for (const box of onLanes.boxes) {
    g.save();
    clipTo(g, 0, box.y - 2, box.x + box.w + 14, box.h + 4);
    if (detailOf(box.run)?.own.length) paintDetail(g, box, toPixel);
    else if (box.run.aggregate) paintHeat(g, box, toPixel);
    else paintLanes(g, box);
    g.restore();
  }
  paintedFor = key;
}

function writeAbove(g, box, w) {
  const {run} = box,
    left = isRacing() || run.aggregate ? run.name : '';
  write(g, left, box.x, box.y - 9, 11.5, color.ink, 'left', true);
  if (w < 700 || box !== onLanes.boxes[0]) return;
  const over = !isRacing() && partner(run);
  const words = run.aggregate
    ? detailOf(run)
      ? aboutRows(run)
      : rowsOf(run).words
    : run.hasPhases
      ? `above: ${phaseNames(run)}   below: messages`
      : `thick: receives   thin: sends   gap: waits   faded: yet to come${over ? `   dashed: ${over.kind}` : ''}`;
  write(g, words, box.x + box.w, box.y - 9, 11, color.grey, 'right');
}

const phaseNames = run => [...new Set(run.spans.map(span => span.name))].join(', ');

function drawRuler(g, box) {
  if (isStuckAtOnce()) return;
  const whole = reach(),
    from = view.from * whole,
    to = view.to * whole,
    least = (to - from) / max(2, box.w / 110);
  const power = 10 ** floor(log10(least)),
    nice = [1, 2, 5, 10].map(k => k * power).find(step => step >= least);
  const step = isTimed() ? nice : max(1, round(nice));
  for (let at = ceil(from / step) * step; at <= to * 1.0001; at += step) {
    const x = toPixel(box, at),
      isFirst = at < step / 2;
    area(g, color.faint, x, RULER - 3, 1, 4);
    const words = isTimed() ? (isFirst ? '0' : time(at)) : isFirst ? 'step' : String(round(at));
    const half = isFirst ? 0 : widthOf(g, words, 11) / 2;
    write(g, words, min(x, box.x + box.w + RIGHT - 4 - half), 8, 11, color.grey, isFirst ? 'left' : 'center');
  }
}

function outlineHovered(g) {
  const box = view.hover && onLanes.boxes.find(each => each.run === view.hover.run);
  if (!box || box.run.aggregate) return;
  const {run} = box,
    i = view.hover.index,
    x1 = toPixel(box, beginsOf(run)[i]),
    x2 = toPixel(box, endsOf(run)[i]);
  pen(g, color.ink, 2);
  g.strokeRect(x1, box.y + run.c.dst[i] * box.lane, max(2, x2 - x1), box.lane);
  line(g, x1, box.y + (run.c.src[i] + 0.5) * box.lane, x2, box.y + (run.c.dst[i] + 0.5) * box.lane);
}

function paintLanes(g, box) {
  const {run, x, y, w, h} = box;
  paintGround(g, box);
  clipTo(g, x, y - 2, w + 14, h + 4);
  const begins = beginsOf(run),
    ends = endsOf(run),
    whole = reach(),
    inView = [];
  const from = view.from * whole,
    to = view.to * whole,
    scale = w / (view.to - view.from) / whole;
  const at = value => x + (value - from) * scale;
  for (let i = 0; i < run.n; i++) if (ends[i] >= from && begins[i] <= to) inView.push(i);
  const lanes = {...tracks(run, box.lane), at, begins, ends, inView};
  if (run.spans && isTimed()) paintSpans(g, box, lanes);
  paintBars(g, box, lanes);
  if (inView.length < MOST_LINES && box.lane >= 4) paintLines(g, box, lanes);
  else if (onWires() && run.bad.size) paintHot(g, box, lanes);
  const other = !isRacing() && isTimed() && partner(run);
  if (other && !lanes.isSmall) paintOver(g, box, lanes, other);
  if (isTimed()) paintFaults(g, box, lanes);
  fade(g, 1);
  const end = at(lengthOf(run));
  if (isRacing() && end < x + w - 4) {
    area(g, color.go, end, y - 1, 2, h + 2);
    write(g, isTimed() ? time(run.elapsed) : `${run.steps} steps`, end + 7, y + h / 2, 13, color.go, 'left', true);
  }
}

/** Returns the position of bars in a lane, as shares of its height: phases of a training use the upper half. */
function tracks(run, lane) {
  if (lane < 7) return {isSmall: true, send: 0, receive: 0, bar: 1, thin: 1};
  if (run.hasPhases) return {isSmall: false, phase: 0.06, sync: 0.3, send: 0.56, receive: 0.7, bar: 0.24, thin: 0.09};
  return {isSmall: false, send: 0.08, receive: 0.36, bar: 0.56, thin: 0.18};
}

function paintGround(g, {run, x, y, w, lane}) {
  const every = lane >= 11 ? 1 : ceil(11 / lane / 5) * 5;
  for (let rank = 0; rank < data.ranks; rank++) {
    const top = y + rank * lane,
      isChosen = view.rank === rank;
    if (lane > 5) area(g, isChosen ? `${color.go}29` : rank % 2 ? color.paper : color.pane, x, top, w, lane);
    if (rank % every) continue;
    const failed = run.failed.some(([who]) => who === rank);
    write(
      g,
      every > 1 ? String(rank) : `rank ${rank}`,
      x - 8,
      top + lane / 2,
      clamp(lane * 0.72, 9, 11.5),
      failed ? color.full : isChosen ? color.go : color.grey,
      'right',
      isChosen || failed,
    );
  }
}

/** Draws phases above gradient buckets, and a collective's reductions in the middle of the lane. */
function paintSpans(g, {run, y, lane}, {at, isSmall, phase, sync}) {
  if (isSmall && !run.hasPhases) return;
  for (const {rank, name, begin, end} of run.spans) {
    const top = y + rank * lane,
      width = max(1, at(end) - at(begin) - 0.6),
      isBelow = isSync(name);
    fade(g, name === 'reduce' ? 0.75 : isSmall ? 0.8 : 1);
    if (name === 'reduce')
      area(
        g,
        color.ink,
        at(begin),
        top + lane * (run.hasPhases ? 0.5 : 0.3),
        width,
        lane * (run.hasPhases ? 0.06 : 0.4),
      );
    else if (isSmall) area(g, phaseColor(name), at(begin), top, width, lane);
    else {
      area(g, phaseColor(name), at(begin), top + lane * (isBelow ? sync : phase), width, lane * 0.22);
      if (lane * 0.22 > 9 && width > 52 && width > widthOf(g, name, 9.5) + 8)
        write(g, name, at(begin) + 5, top + lane * ((isBelow ? sync : phase) + 0.11), 9.5, wordsOn(name));
    }
  }
  fade(g, 1);
}

function paintBars(g, {run, y, lane}, {at, begins, ends, inView, isSmall, send, receive, bar, thin}) {
  const painted = new Float64Array(data.ranks).fill(-1e9),
    {src, dst, chunk} = run.c;
  if (isSmall && run.hasPhases) return;
  for (const i of inView) {
    const left = at(begins[i]),
      right = at(ends[i]),
      hue = hueOf(run, chunk[i]),
      width = right - left;
    const strength = isFar(run, i) ? 0.12 : 1,
      top = y + dst[i] * lane + lane * receive;
    fade(g, strength);
    if (right > painted[dst[i]] + 0.4) {
      // one bar per pixel
      const from = isSmall ? max(left, painted[dst[i]]) : left;
      area(g, hue, from, top, max(right - from - (width > 3 ? 0.8 : 0), 0.5), lane * bar);
      painted[dst[i]] = right;
    }
    if (isSmall) continue;
    fade(g, strength * 0.8);
    area(g, hue, left, y + src[i] * lane + lane * send, max(width - 0.8, 0.5), lane * thin);
  }
  fade(g, 1);
}

/**
 * A line from who sends to who receives; those over a link that stands out in its color. In a ring that from the last
 * rank to the first leaves at the bottom and comes in at the top.
 */
function paintLines(g, {run, y, lane}, {at, begins, ends, inView, send, receive, bar, thin}) {
  const around = run.isRing && data.ranks > 2 ? data.ranks : 0;
  for (const i of inView) {
    const {src, dst, chunk} = run.c,
      isHot = run.crosses[i] && onWires(),
      isPath = view.path && run.isCritical[i];
    fade(g, isFar(run, i) ? 0.08 : isPath ? 1 : isHot ? 0.9 : view.path ? 0.15 : 0.6);
    pen(
      g,
      isPath ? color.ink : isHot ? color.full : hueOf(run, chunk[i]),
      isPath ? 3 : isHot ? 1.8 : lane > 9 ? 1.2 : 0.7,
    );
    const from = src[i] + send + thin / 2,
      to = dst[i] + receive + bar / 2;
    for (const off of around && dst[i] < src[i] ? [0, around] : [0]) {
      const turns = dst[i] < src[i] ? around : 0;
      line(g, at(begins[i]), y + (from - off) * lane, at(ends[i]), y + (to + turns - off) * lane);
    }
  }
}

function paintHot(g, {run, y, lane}, {at, begins, ends, inView}) {
  fade(g, 0.9);
  for (const i of inView) {
    if (!run.crosses[i]) continue;
    const left = at(begins[i]);
    area(g, color.full, left, y + (run.c.dst[i] + 0.5) * lane - 1, max(1, at(ends[i]) - left), max(2, lane * 0.6));
  }
}

/** Draws the prediction or measurement of the same run as dashed outlines. */
function paintOver(g, {y, lane, h}, {at, receive, bar}, other) {
  pen(g, color.ink, 1);
  fade(g, 0.55);
  g.setLineDash([2, 2]);
  for (let i = 0; i < other.n; i++) {
    const left = at(other.begin[i]);
    g.strokeRect(
      left,
      y + (other.c.dst[i] + receive - 0.03) * lane,
      max(1, at(other.end[i]) - left),
      (bar + 0.06) * lane,
    );
  }
  line(g, at(other.elapsed), y, at(other.elapsed), y + h);
  g.setLineDash([]);
}

/** Draws a cross where a rank failed, and a bar to the right end for a rank that waits forever. */
function paintFaults(g, {run, x, y, w, lane}, {at}) {
  fade(g, 1);
  for (const [rank, , , , since] of run.unfinished) {
    const middle = y + (rank + 0.5) * lane;
    pen(g, color.full, 1.5);
    g.setLineDash([4, 3]);
    line(g, at(since), middle, x + w, middle);
    g.setLineDash([]);
    dot(g, at(since), middle, 3, color.paper, color.full, 1.5);
  }
  for (const [rank, when] of run.failed) {
    pen(g, color.full, 3);
    cross(g, at(when), y + (rank + 0.5) * lane, clamp(lane * 0.3, 3, 7));
  }
}
