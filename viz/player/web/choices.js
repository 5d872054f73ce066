// The actions of controls, keys and gestures.

import {isTimed, setClock} from './clock.js';
import {openRank} from './detail.js';
import {clamp} from './format.js';
import {groupOf} from './groups.js';
import {repaint} from './lanes.js';
import {writePanel} from './panel.js';
import {areGroups, data, find, firstRun, isRacing, tell, view} from './state.js';

export function showRuns(runs) {
  Object.assign(view, {shown: runs, x: 0, from: 0, to: 1, link: -1, group: -1, hover: null});
  forgetPlaces();
  tell.controls(true);
  tell.draw();
}

export function forgetPlaces() {
  for (const run of data.runs) run.placesKey = '';
  repaint();
}

export function race() {
  if (isRacing()) return showRuns([view.shown[0]]);
  if (data.runs.length < 2) return;
  const named = name => data.runs.findIndex(run => run.name === name),
    pair = [named('ring'), named('naive')];
  const current = view.shown[0];
  showRuns(pair.includes(current) && !pair.includes(-1) ? pair : [current, current ? 0 : 1]);
}

export function showRun(index, beside) {
  if (!beside) return showRuns([index]);
  const without = view.shown.filter(shown => shown !== index);
  showRuns(without.length < view.shown.length && without.length ? without : [view.shown[0], index]);
}

export function setView(kind) {
  if (areGroups()) return;
  view.kind = kind;
  forgetPlaces();
  writePanel();
  tell.controls();
  tell.draw();
}

export function chooseRank(rank) {
  view.rank = rank >= 0 && rank < data.ranks ? rank : -1;
  const field = find('find'),
    run = firstRun();
  if (run.aggregate) showGroupOf(run);
  if (document.activeElement !== field) field.value = view.rank >= 0 ? view.rank : '';
  repaint();
  tell.draw();
}

/** Opens the group of the selected rank, and shows the rank's messages once they are inflated. */
function showGroupOf(run) {
  if (view.rank >= 0) view.group = groupOf(run, view.rank);
  openRank(run, view.rank).then(() => {
    repaint();
    tell.draw();
  });
}

export function chooseGroup(group) {
  view.group = group;
  if (view.rank >= 0) chooseRank(-1);
  repaint();
  tell.controls();
  tell.draw();
}

export function setDark(isDark) {
  document.documentElement.classList.toggle('dark', isDark);
  tell.controls(true);
  repaint();
  tell.draw();
}

export const isDark = () => document.documentElement.classList.contains('dark');
export const setSpeed = factor => {
  view.speed = clamp(view.speed * factor, 1 / 32, 32);
  tell.controls();
};

export function showAll() {
  Object.assign(view, {from: 0, to: 1, zoom: {scale: 1, x: 0, y: 0}});
  tell.draw();
}

/** Clears the selection. In an open group, the first call only clears the rank. */
export function chooseNothing() {
  view.link = -1;
  if (view.group >= 0 && view.rank < 0) chooseGroup(-1);
  chooseRank(-1);
  writePanel();
}

export const switchPath = () => {
  view.path = !view.path;
  tell.controls();
  tell.draw();
};
export const switchClock = () => {
  setClock(isTimed() ? 'steps' : 'time');
  repaint();
};
export const switchView = () => setView(view.kind === 'talk' ? 'wires' : 'talk');
