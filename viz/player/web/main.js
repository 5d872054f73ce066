// Starts the page: inflates its data, updates its controls, and draws a frame after each change.

import {buffersAt, completeness} from './buffers.js';
import {sharpness} from './canvas.js';
import {isStuckAtOnce, isTimed, pause, play, seek, stepProgram, total, watchingSeconds} from './clock.js';
import {readColors} from './colors.js';
import {inflate} from './columns.js';
import {clamp, digits, max, round, time} from './format.js';
import {forgetPlaces, isDark, race, setDark, setView, showRun, showRuns} from './choices.js';
import {takeHands} from './hands.js';
import {drawLanes} from './lanes.js';
import {drawUse, element, writePanel} from './panel.js';
import {prepare} from './run.js';
import {drawStage} from './stage.js';
import {areGroups, calm, data, find, firstRun, isRacing, onWires, tell, view} from './state.js';
import {caption, clockWords, headline, story} from './words.js';

const LATE = 0.04; // seconds between two frames
const SPOKEN = 4; // seconds between two captions for screen readers
const stats = {frames: 0, script: 0, opened: 0};

let isWanted = false,
  last = 0,
  lateFrames = 0,
  waited = 0,
  spoken = -1e9;

function draw() {
  if (isWanted) return;
  isWanted = true;
  requestAnimationFrame(frame);
}

function frame(now) {
  isWanted = false;
  if (view.playing) advance(now);
  const from = performance.now();
  drawStage();
  drawLanes();
  writeNow(now);
  if (!isRacing()) drawUse();
  stats.frames++;
  stats.script += performance.now() - from;
  if (view.playing) draw();
  else last = 0;
}

/** Moves the clock by the time since the last frame; with reduced motion, by one step at a time. */
function advance(now) {
  const seconds = last ? clamp((now - last) / 1000, 0, 0.1) : 0; // a frame's time may be earlier than the last one
  last = now;
  lateFrames = seconds > LATE ? lateFrames + 1 : 0;
  if (lateFrames > 8) sharpness.most = 1;
  if (calm) {
    waited += seconds * view.speed;
    if (waited > 0.8) {
      waited = 0;
      stepProgram(1);
      view.playing = true;
    }
  } else {
    view.x += (seconds * view.speed * total()) / watchingSeconds();
  }
  if (view.x < total()) return;
  view.x = total();
  view.playing = false;
  writeControls();
}

function setText(id, words) {
  if (find(id).textContent !== words) find(id).textContent = words;
}

/** Updates everything that changes with each frame. During playback, screen readers get a caption every few seconds. */
function writeNow(now) {
  const [clock, whole] = clockWords(),
    words = caption(),
    scrub = find('scrub');
  setText('now', clock);
  setText('of', whole);
  setText('caption', words);
  if (!view.playing || now - spoken > SPOKEN * 1000) {
    setText('spoken', words);
    spoken = now;
  }
  const at = String(round((view.x / total()) * 10000));
  if (scrub.value !== at) scrub.value = at;
  scrub.setAttribute('aria-valuetext', clock);
}

function writeControls(isOther) {
  const button = find('play'),
    groups = areGroups();
  button.textContent = view.playing ? '❚❚' : '▶';
  button.setAttribute('aria-label', view.playing ? 'Pause' : 'Play');
  const second = isTimed() && !isStuckAtOnce() ? ` · 1 s = ${time((total() / watchingSeconds()) * view.speed)}` : '';
  setText('speed', `${digits(view.speed, 2)}×${second}`);
  find('b-view').hidden = groups || !data.links.src.length;
  find('b-clock').hidden = find('b-path').hidden = groups;
  setText('b-view', view.kind === 'talk' ? 'Show network' : 'Show traffic');
  setText('b-clock', isTimed() ? 'Clock: time' : 'Clock: steps');
  find('b-path').setAttribute('aria-pressed', view.path);
  document.body.classList.toggle('keyed', isRacing() || onWires());
  if (isOther) writeRuns();
}

/** Updates everything that depends on the shown runs. */
function writeRuns() {
  readColors();
  document.querySelector('main').className = isRacing() ? 'two' : '';
  setText('say', headline());
  const chips = data.runs.map((run, index) => {
    const chip = element('button');
    chip.append(element('b', run.name), element('small', run.complete ? time(run.elapsed) : 'never ends'));
    chip.setAttribute('aria-pressed', view.shown.includes(index));
    chip.title = `Show (${index + 1}); with Shift, next to another run`;
    chip.onclick = event => showRun(index, event.shiftKey || event.ctrlKey || event.metaKey);
    return chip;
  });
  if (chips.length > 1) {
    const button = element('button', isRacing() ? 'One at a time' : 'Race');
    button.title = 'Two runs on one clock (r)';
    button.onclick = race;
    chips.push(button);
  }
  find('runs').replaceChildren(...chips);
  find('story').replaceChildren(...story(firstRun()).map(words => element('li', words)));
  writePanel();
}

/** Returns the first view: the network if a link stands out, or if a circle would be too full. */
function firstView() {
  const run = firstRun(),
    {bandwidth} = data.links;
  const stands = run.standing.length && (new Set(bandwidth).size > 1 || data.ranks > 16);
  return bandwidth.length && (stands || data.ranks > 64) ? 'wires' : 'talk';
}

/** Draws in light colors before printing, at once, because the browser requests no frame while it prints. */
function drawForPaper() {
  let wasDark = false;
  addEventListener('beforeprint', () => {
    pause();
    wasDark = isDark();
    if (wasDark) setDark(false);
    frame(performance.now());
  });
  addEventListener('afterprint', () => {
    if (wasDark) setDark(true);
  });
}

async function begin() {
  const from = performance.now();
  Object.assign(data, await inflate(JSON.parse(find('data').textContent)));
  for (const run of data.runs) prepare(run, data.ranks);
  Object.assign(tell, {draw, controls: writeControls});
  setText('title', data.title);
  document.title = data.title;
  const ring = data.runs.findIndex(run => run.name.startsWith('ring'));
  view.shown = data.teaches && data.runs.length > 1 ? [0, 1] : [max(0, ring)];
  view.kind = firstView();
  readColors();
  takeHands();
  setDark(matchMedia('(prefers-color-scheme: dark)').matches);
  const wanted = new URLSearchParams(location.hash.slice(1));
  if (wanted.has('t')) seek(Number(wanted.get('t')) * total());
  else if (!calm && !wanted.has('still')) play();
  frame(performance.now());
  new ResizeObserver(() => {
    // not earlier: the runs must be prepared
    forgetPlaces();
    draw();
  }).observe(document.querySelector('main'));
  drawForPaper();
  stats.opened = performance.now() - from;
  window.player = {data, view, stats, seek, setView, showRun, showRuns, total, buffersAt, completeness}; // for tests
  document.documentElement.dataset.ready = '1';
}

begin();
