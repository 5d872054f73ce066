// Shows many ranks as groups on a circle, with each group's current load and the bytes between groups.

import {dot, fade, label, pen, slab, write} from './canvas.js';
import {color} from './colors.js';
import {clamp, cos, floor, hypot, many, max, min, percent, PI, sin} from './format.js';
import {data, view} from './state.js';

const BYTE = 255, // shares are bytes
  FULL = 400; // flows between groups; more than these are drawn thinner

export const binAt = run => clamp(floor((view.x / run.elapsed) * run.aggregate.bins), 0, run.aggregate.bins - 1);
export const firstOf = (sizes, group) => sizes.slice(0, group).reduce((sum, size) => sum + size, 0);
export const busyNow = (run, group) => run.aggregate.busy[group * run.aggregate.bins + binAt(run)] / BYTE;
export const gotNow = (run, group) => run.aggregate.got[group * run.aggregate.bins + binAt(run)] / BYTE;

export const groupOf = (run, rank) => {
  let last = 0;
  return run.aggregate.sizes.findIndex(size => rank < (last += size));
};

/** Returns the positions of groups, or of the ranks of the chosen group. */
export function circleOf(pane, count) {
  const ring = min(pane.w, pane.h) / 2 - 46,
    {scale, x, y} = view.zoom;
  const cx = pane.x + pane.w / 2 + x,
    cy = pane.y + pane.h / 2 + 4 + y;
  const at = Array.from({length: count}, (_, i) => {
    const angle = -PI / 2 + (2 * PI * i) / count;
    return [cx + ring * scale * cos(angle), cy + ring * scale * sin(angle), cos(angle), sin(angle)];
  });
  return {at, cx, cy, ring: ring * scale, radius: clamp(((PI * ring * scale) / count) * 0.62, 3, 26)};
}

export function drawGroups(g, pane, run) {
  if (view.group >= 0) return drawGroup(g, pane, run);
  const {groups, sizes, flow} = run.aggregate,
    circle = (run.circle = circleOf(pane, groups.length));
  drawFlows(g, circle, flow, groups.length);
  const bad = new Set(
    run.standing
      .flatMap(cable => cable.links)
      .flatMap(link => [data.links.src[link], data.links.dst[link]])
      .map(node => groupOfNode(run, node)),
  );
  groups.forEach((name, i) => {
    const [x, y, dx, dy] = circle.at[i];
    drawFilled(g, x, y, circle.radius, busyNow(run, i));
    pen(g, color.go, 3.5);
    g.beginPath();
    g.arc(x, y, circle.radius + 4, -PI / 2, -PI / 2 + 2 * PI * gotNow(run, i));
    g.stroke();
    if (bad.has(i)) dot(g, x, y, circle.radius + 8, null, color.full, 3);
    if (circle.radius > 6)
      write(g, name, x + (circle.radius + 20) * dx, y + (circle.radius + 14) * dy, 11, color.grey, 'center');
  });
  writeBad(g, run, circle, bad);
  slab(g, circle.cx - 62, circle.cy - 30, 124, 52, 8, color.paper);
  write(g, many(data.ranks, 'rank'), circle.cx, circle.cy - 10, 18, color.ink, 'center', true);
  write(g, `${groups.length} groups of ${sizes[0]}`, circle.cx, circle.cy + 11, 13, color.grey, 'center');
  const notes = [
    'click a group to open it',
    'dark: its ranks receive now',
    'blue arc: share of its bytes received',
  ];
  notes.forEach((words, i) => write(g, words, pane.x + 14, pane.y + pane.h - 44 + 16 * i, 11, color.grey));
}

/** Returns the group of a rank's node, or the group named after a switch; -1 for other nodes. */
const groupOfNode = (run, node) =>
  node < data.ranks ? groupOf(run, node) : run.aggregate.groups.indexOf(data.nodes[node]);

function drawFilled(g, x, y, radius, share) {
  dot(g, x, y, radius, color.cell);
  fade(g, 0.1 + 0.8 * share);
  dot(g, x, y, radius, color.ink);
  fade(g, 1);
}

function drawFlows(g, circle, flow, n) {
  let most = 1,
    lines = 0;
  flow.forEach((bytes, at) => {
    if (floor(at / n) === at % n || !bytes) return;
    most = max(most, bytes);
    lines++;
  });
  const thin = min(1, FULL / lines); // otherwise, many lines form a black disc
  flow.forEach((bytes, at) => {
    const from = floor(at / n),
      to = at % n;
    if (from === to || !bytes) return;
    const [x1, y1] = circle.at[from],
      [x2, y2] = circle.at[to],
      {cx, cy} = circle;
    const pull = 1 - (0.65 * hypot(x2 - x1, y2 - y1)) / (2 * circle.ring);
    fade(g, (0.1 + (0.4 * bytes) / most) * thin);
    pen(g, color.ink, 0.5 + ((4 * bytes) / most) * thin);
    g.beginPath();
    g.moveTo(x1, y1);
    g.quadraticCurveTo(cx + ((x1 + x2) / 2 - cx) * pull, cy + ((y1 + y2) / 2 - cy) * pull, x2, y2);
    g.stroke();
  });
  fade(g, 1);
}

function writeBad(g, run, circle, bad) {
  const [first] = bad;
  if (!(first >= 0)) return;
  const [, , dx, dy] = circle.at[first],
    inner = circle.ring - circle.radius - 40;
  label(g, run.standing[0].name, circle.cx + inner * dx, circle.cy + (inner + 10) * dy, color.full, color.paper);
}

/** Draws the ranks of the selected group. */
function drawGroup(g, pane, run) {
  const {groups, sizes, rows, most, bins} = run.aggregate,
    size = sizes[view.group],
    first = firstOf(sizes, view.group);
  const circle = (run.circle = circleOf(pane, size));
  const bad = new Set(
    run.standing.flatMap(cable => cable.links).flatMap(link => [data.links.src[link], data.links.dst[link]]),
  );
  circle.at.forEach(([x, y, dx, dy], i) => {
    const rank = first + i,
      row = floor((rank * rows) / data.ranks);
    drawFilled(g, x, y, circle.radius, most[row * bins + binAt(run)] / BYTE);
    if (bad.has(rank)) dot(g, x, y, circle.radius + 5, null, color.full, 3);
    if (view.rank === rank) dot(g, x, y, circle.radius + 9, null, color.go, 3);
    if (circle.radius > 6)
      write(
        g,
        String(rank),
        x + (circle.radius + 16) * dx,
        y + (circle.radius + 12) * dy,
        11,
        bad.has(rank) ? color.full : color.grey,
        'center',
        bad.has(rank),
      );
  });
  write(g, groups[view.group], circle.cx, circle.cy - 10, 18, color.ink, 'center', true);
  write(
    g,
    `${many(size, 'rank')}, ${percent(gotNow(run, view.group))} received`,
    circle.cx,
    circle.cy + 11,
    13,
    color.grey,
    'center',
  );
  const note = 'dark: the rank receives now; click for its messages; esc goes back';
  write(g, note, pane.x + 14, pane.y + pane.h - 12, 11, color.grey);
}
