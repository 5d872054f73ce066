// Finds the object under the pointer, and selects it on a click.

import {chooseGroup, chooseRank} from './choices.js';
import {activeAt, isTimed, lengthOf} from './clock.js';
import {aboutDetail, detailOf} from './detail.js';
import {clamp, floor, hypot, max, time} from './format.js';
import {firstOf} from './groups.js';
import {aboutRow} from './heat.js';
import {fromPixel, GUTTER, onLanes} from './lanes.js';
import {writePanel} from './panel.js';
import {onStage} from './stage.js';
import {data, find, lanes, onWires, shownRuns, stage, tell, view} from './state.js';
import {aboutLink, aboutMessage, aboutRank} from './words.js';

export function tip(event, words) {
  const box = find('tip');
  box.hidden = !words;
  if (!words) return;
  box.textContent = words;
  box.style.setProperty('left', `${clamp(event.clientX + 14, 4, innerWidth - box.offsetWidth - 4)}px`);
  box.style.setProperty('top', `${clamp(event.clientY + 16, 4, innerHeight - box.offsetHeight - 4)}px`);
}

export const within = (canvas, event) => {
  const box = canvas.getBoundingClientRect();
  return [event.clientX - box.left, event.clientY - box.top];
};

export const runAt = (x, y) => {
  const at = onStage.panes.findIndex(pane => x >= pane.x && x < pane.x + pane.w && y >= pane.y && y < pane.y + pane.h);
  return shownRuns()[max(0, at)];
};

export const isIn = ([left, top, w, h], x, y) => x >= left && x <= left + w && y >= top && y <= top + h;

function rankAt(run, x, y) {
  const {at, strips, radius} = run.places;
  for (let rank = 0; rank < data.ranks; rank++) {
    if (hypot(at[rank][0] - x, at[rank][1] - y) < max(6, radius + 2) || (strips[rank] && isIn(strips[rank], x, y)))
      return rank;
  }
  return -1;
}

function linkAt(run, x, y) {
  let closest = -1,
    nearest = 6;
  if (onWires())
    run.places.lines.forEach(([x1, y1, x2, y2], link) => {
      const dx = x2 - x1,
        dy = y2 - y1,
        share = clamp(((x - x1) * dx + (y - y1) * dy) / (dx * dx + dy * dy), 0, 1);
      const far = hypot(x1 + share * dx - x, y1 + share * dy - y);
      if (far < nearest) [nearest, closest] = [far, link];
    });
  return closest;
}

const groupAt = (run, x, y) => run.circle.at.findIndex(at => hypot(at[0] - x, at[1] - y) < run.circle.radius + 8);

export function hoverStage(event) {
  const [x, y] = within(stage, event),
    run = runAt(x, y);
  view.hover = null;
  if (run.aggregate) return tip(event, aboutGroup(run, groupAt(run, x, y)));
  const token = onStage.tokens.find(one => hypot(one.x - x, one.y - y) < one.radius);
  if (token) view.hover = {run: token.run, index: token.index};
  const rank = rankAt(run, x, y),
    link = linkAt(run, x, y);
  tip(
    event,
    token
      ? aboutMessage(token.run, token.index)
      : rank >= 0
        ? aboutRank(run, rank)
        : link >= 0
          ? aboutLink(run, link)
          : '',
  );
  tell.draw();
}

function aboutGroup(run, at) {
  if (at < 0) return '';
  if (view.group < 0) return `${run.aggregate.groups[at]}\nclick to see its ${run.aggregate.sizes[at]} ranks`;
  return `${aboutRank(run, firstOf(run.aggregate.sizes, view.group) + at)}\nclick to see its messages`;
}

export function clickStage(event) {
  const [x, y] = within(stage, event),
    run = runAt(x, y);
  if (run.aggregate) {
    const at = groupAt(run, x, y);
    if (at >= 0 && view.group < 0) chooseGroup(at);
    else if (at < 0) chooseGroup(-1);
    else chooseRank(firstOf(run.aggregate.sizes, view.group) + at);
    return;
  }
  const rank = rankAt(run, x, y),
    link = rank < 0 ? linkAt(run, x, y) : -1;
  view.link = link >= 0 && link !== view.link ? link : -1;
  chooseRank(rank >= 0 && rank !== view.rank ? rank : -1);
  writePanel();
}

export function laneAt(event) {
  const [px, py] = within(lanes, event),
    {boxes} = onLanes;
  const box = boxes.find(one => py >= one.y && py <= one.y + one.h) || boxes[0],
    row = (py - box.y) / box.lane;
  return {box, px, py, x: fromPixel(box, px), rank: floor(row), isLow: row - floor(row) > 0.34};
}

/** Returns the message that a rank receives at a time; in the upper half of its lane, the message that it sends. */
function messageAt(run, {rank, x, isLow}) {
  const near = activeAt(run, clamp(x, 0, lengthOf(run) * 0.9999999)).filter(
    i => run.c.dst[i] === rank || run.c.src[i] === rank,
  );
  const here = near.find(i => (isLow ? run.c.dst[i] : run.c.src[i]) === rank);
  return here ?? near[0] ?? -1;
}

export function hoverLanes(event) {
  const at = laneAt(event),
    {run} = at.box,
    isInside = at.px > GUTTER && at.rank >= 0 && at.py > at.box.y && at.py < at.box.y + at.box.h;
  view.hover = null;
  if (!isInside || at.x > lengthOf(run)) return tip(event, '');
  if (run.aggregate)
    return tip(
      event,
      detailOf(run)?.own.length
        ? aboutDetail(run, at)
        : aboutRow(run, at.rank, clamp(floor((at.x / run.elapsed) * run.aggregate.bins), 0, run.aggregate.bins - 1)),
    );
  const index = messageAt(run, at);
  if (index >= 0) view.hover = {run, index};
  tip(event, index >= 0 ? aboutMessage(run, index) : spanWords(run, at) || `rank ${at.rank} waits`);
  tell.draw();
}

function spanWords(run, {rank, x}) {
  const span = isTimed() && run.spans?.find(one => one.rank === rank && one.begin <= x && x < one.end);
  return span ? `rank ${rank}: ${span.name}, ${time(span.end - span.begin)}` : '';
}
