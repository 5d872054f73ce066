// The state of the page: the data of all runs, and the user's choices.

export const find = id => document.getElementById(id);
export const stage = find('stage');
export const lanes = find('lanes');

/** The network and its runs; main.js fills it. */
export const data = {};

export const view = {
  x: 0, // seconds or steps, as `clock` says
  clock: 'time', // or 'steps'
  playing: false,
  speed: 1,
  kind: 'talk', // the pairs of ranks that communicate; or 'wires', the network
  shown: [0], // runs; two race
  path: false, // whether the critical path is shown
  rank: -1, // the selected rank, link and group; -1: none
  link: -1,
  group: -1,
  hover: null, // {run, index} of a message
  from: 0, // what the lanes show, as shares of the whole
  to: 1,
  zoom: {scale: 1, x: 0, y: 0}, // of the stage
};

/** Callbacks of main.js for a change: `draw` a frame, or update the `controls`. */
export const tell = {draw() {}, controls() {}};

export const calm = matchMedia('(prefers-reduced-motion: reduce)').matches;
export const shownRuns = () => view.shown.map(index => data.runs[index]);
export const firstRun = () => data.runs[view.shown[0]];
export const isRacing = () => view.shown.length > 1;
export const areGroups = () => Boolean(firstRun().aggregate);
export const onWires = () => view.kind === 'wires' && data.links.src.length > 0;
export const isRank = node => node < data.ranks;
export const isFar = (run, i) => view.rank >= 0 && run.c.src[i] !== view.rank && run.c.dst[i] !== view.rank;

export const nodeName = node => (isRank(node) && !areGroups() ? `rank ${node}` : data.nodes[node]);
export const linkName = link => `${nodeName(data.links.src[link])} → ${nodeName(data.links.dst[link])}`;

/** Returns the prediction of a measured run, or the measurement of a predicted run. */
export const partner = run =>
  data.runs.find(
    other => other.title === run.title && other.nbytes === run.nbytes && other.kind !== run.kind && !other.aggregate,
  );
