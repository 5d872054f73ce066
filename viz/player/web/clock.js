// One clock for all runs on the page, in seconds or in steps.

import {abs, ceil, clamp, floor, max} from './format.js';
import {firstRun, isRacing, partner, shownRuns, tell, view} from './state.js';

export const isTimed = () => view.clock === 'time';
/** Returns whether ranks deadlock before any message, so that no time passes. */
export const isStuckAtOnce = () => shownRuns().every(run => !run.count && !run.complete);
export const lengthOf = run => (isTimed() ? run.elapsed : run.steps);
export const total = () => max(...shownRuns().map(lengthOf));
export const beginsOf = run => (isTimed() ? run.begin : run.depthBegin);
export const endsOf = run => (isTimed() ? run.end : run.depthEnd);
export const isOver = run => view.x >= lengthOf(run) * 0.99999;

/** Returns the end of the lanes: the end of the longest run shown. */
export function reach() {
  const other = isTimed() && !isRacing() && partner(firstRun());
  return other ? max(total(), other.elapsed) : total();
}

/** Returns the playback time of the whole run: a little more than a second per step, between 10 and 30 seconds. */
export const watchingSeconds = () => clamp(max(...shownRuns().map(run => run.steps)) * 1.1, 10, 30);

export function seek(x) {
  view.x = clamp(x, 0, total());
  tell.draw();
}

export function play() {
  if (view.x >= total() * 0.9999) view.x = 0;
  view.playing = true;
  tell.controls();
  tell.draw();
}

export function pause() {
  view.playing = false;
  tell.controls();
  tell.draw();
}

export const toggle = () => (view.playing ? pause() : play());

/** Returns the messages in flight at a time. */
export function activeAt(run, x) {
  const key = `${x} ${view.clock}`;
  if (run.activeKey === key) return run.active;
  const begins = beginsOf(run),
    ends = endsOf(run),
    active = [];
  for (let i = 0; i < run.n; i++) if (begins[i] <= x && x < ends[i]) active.push(i);
  run.activeKey = key;
  run.active = active;
  return active;
}

const wholeStep = way => (way > 0 ? floor(view.x + 1e-6) + 1 : ceil(view.x - 1e-6) - 1);

/** Returns the nearest of sorted times after or before now. */
function nearest(times, way) {
  const slack = total() * 1e-7;
  if (way > 0) return times.find(time => time > view.x + slack) ?? total();
  return times.findLast(time => time < view.x - slack) ?? 0;
}

/** Moves forward or back to the nearest end of a message. */
export function stepMessage(way) {
  pause();
  if (!isTimed()) return seek(wholeStep(way));
  const run = firstRun();
  if (run.aggregate) return seek(view.x + (way * run.elapsed) / run.aggregate.bins);
  const moments = shownRuns().map(shown => nearest(shown.ends, way));
  seek(moments.reduce((best, x) => (abs(x - view.x) < abs(best - view.x) ? x : best)));
}

/** Moves forward or back to the nearest end of a step. */
export function stepProgram(way) {
  pause();
  const run = firstRun();
  if (!isTimed()) return seek(wholeStep(way));
  seek(run.aggregate ? view.x + (way * run.elapsed) / 20 : nearest([0, ...run.stepEnd], way));
}

/** Switches between seconds and steps without changing the shown moment. */
export function setClock(kind) {
  const run = firstRun();
  if (kind === view.clock || run.aggregate) return;
  const step = run.stepEnd.findIndex(end => end > view.x);
  const x = kind === 'steps' ? (step < 0 ? run.steps : step) : view.x > 0 ? run.stepEnd[ceil(view.x) - 1] : 0;
  view.clock = kind;
  view.from = 0;
  view.to = 1;
  seek(x);
  tell.controls();
}
