// Keys, buttons and pointers.

import {
  chooseNothing,
  chooseRank,
  isDark,
  race,
  setDark,
  setSpeed,
  showAll,
  showRun,
  switchClock,
  switchPath,
  switchView,
} from './choices.js';
import {pause, seek, stepMessage, stepProgram, toggle, total} from './clock.js';
import {down, move, up, wheel} from './drag.js';
import {tip} from './hover.js';
import {data, find, lanes, stage, tell, view} from './state.js';

const listen = (target, kinds, act, options) => {
  for (const kind of kinds.split(' ')) target.addEventListener(kind, act, options);
};

const KEYS = {
  ' ': toggle,
  ArrowRight: event => (event.shiftKey ? stepProgram : stepMessage)(1),
  ArrowLeft: event => (event.shiftKey ? stepProgram : stepMessage)(-1),
  Home: () => {
    pause();
    seek(0);
  },
  End: () => {
    pause();
    seek(total());
  },
  '+': () => setSpeed(2),
  '=': () => setSpeed(2),
  '-': () => setSpeed(0.5),
  r: race,
  v: switchView,
  l: switchClock,
  c: switchPath,
  d: () => setDark(!isDark()),
  '/': () => find('find').focus(),
  '?': () => find('help').showModal(),
  0: showAll,
  Escape: chooseNothing,
};

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || find('help').open) return;
  const {target} = event;
  if (target === find('find')) {
    if (event.key === 'Escape' || event.key === 'Enter') target.blur();
    return;
  }
  if (event.key === ' ' && target.tagName === 'BUTTON' && target.id !== 'play') return; // it presses that button
  if (event.key.startsWith('Arrow') && target.id === 'scrub' && event.shiftKey) event.preventDefault();
  const digit = /^Digit([1-9])$/.exec(event.code),
    index = digit ? digit[1] - 1 : -1;
  const act =
    index >= 0 && index < data.runs.length
      ? () => showRun(index, event.shiftKey)
      : KEYS[event.key] || KEYS[event.key.toLowerCase()];
  if (!act) return;
  act(event);
  event.preventDefault();
}

export function takeHands() {
  for (const canvas of [stage, lanes]) {
    listen(canvas, 'pointerdown', down);
    listen(canvas, 'pointermove', move);
    listen(canvas, 'pointerup pointercancel', up);
    listen(canvas, 'wheel', wheel, {passive: false});
    listen(canvas, 'pointerleave', event => {
      view.hover = null;
      tip(event, '');
      tell.draw();
    });
  }
  listen(window, 'keydown', onKey);
  listen(find('find'), 'input', event =>
    chooseRank(/^\d+$/.test(event.target.value.trim()) ? Number(event.target.value) : -1),
  );
  listen(find('scrub'), 'input', event => {
    pause();
    seek((event.target.value / 10000) * total());
  });
  const buttons = {
    play: toggle,
    back: event => (event.shiftKey ? stepProgram : stepMessage)(-1),
    next: event => (event.shiftKey ? stepProgram : stepMessage)(1),
    slower: () => setSpeed(0.5),
    faster: () => setSpeed(2),
    'b-view': switchView,
    'b-clock': switchClock,
    'b-path': switchPath,
    'b-dark': () => setDark(!isDark()),
    'b-help': () => find('help').showModal(),
  };
  for (const [id, act] of Object.entries(buttons)) find(id).onclick = act;
}
