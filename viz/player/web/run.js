// Derives data of a run once, before drawing.

import {chunkColors} from './colors.js';
import {max} from './format.js';

const TICKS = 2 ** 30; // per run, as in runs.py
const COMPLETE = 2 ** 30; // a flag next to a chunk's contributors, as in buffers.py

export function prepare(run, ranks) {
  run.standing = run.cables.slice(0, run.limits.standing);
  run.bad = new Set(run.standing.flatMap(cable => cable.links));
  run.isSlow = run.limits.kind === 'slow';
  run.tick = run.elapsed / TICKS;
  run.n = run.aggregate ? 0 : run.columns.src.length;
  if (!run.aggregate) prepareMessages(run, ranks);
}

function prepareMessages(run, ranks) {
  const c = (run.c = run.columns),
    toSeconds = run.tick;
  run.begin = Float64Array.from(c.begin, ticks => ticks * toSeconds);
  run.end = Float64Array.from(c.end, ticks => ticks * toSeconds);
  run.depthBegin = Float64Array.from(c.depth);
  run.depthEnd = Float64Array.from(c.depth, depth => depth + 1);
  run.stepEnd = stepEnds(run);
  run.ends = [...new Set(Array.from(run.end, end => Number(end.toPrecision(9))))].sort((a, b) => a - b);
  run.isCritical = new Uint8Array(run.n);
  for (const i of run.critical) run.isCritical[i] = 1;
  run.mostBytes = c.bytes.reduce((most, bytes) => max(most, bytes), 1);
  run.hasSums = c.reduces.some(Boolean);
  run.turn = run.hasSums ? c.depth.reduce((last, depth, i) => (c.reduces[i] ? max(last, depth + 1) : last), 0) : 0;
  run.isRing = run.n > 0 && c.src.every((src, i) => c.dst[i] === (src + 1) % ranks);
  const isBad = run.routes.map(route => (route.some(link => run.bad.has(link)) ? 1 : 0));
  run.crosses = Uint8Array.from(c.route, route => isBad[route]); // whether the message crosses the bottleneck
  run.chunks = run.buffers ? run.buffers.chunks : c.chunk.reduce((most, chunk, i) => max(most, chunk + c.count[i]), 1);
  run.colors = chunkColors(run.chunks);
  if (run.spans) prepareSpans(run, toSeconds);
  if (run.buffers) prepareBuffers(run);
}

/** Computes the end of each step's last message. */
function stepEnds(run) {
  const ends = new Float64Array(run.steps);
  for (let i = 0; i < run.n; i++) ends[run.c.depth[i]] = max(ends[run.c.depth[i]], run.end[i]);
  for (let step = 1; step < run.steps; step++) ends[step] = max(ends[step], ends[step - 1]);
  return ends;
}

function prepareSpans(run, toSeconds) {
  const {names, columns} = run.spans;
  run.spans = Array.from(columns.rank, (rank, i) => ({
    rank,
    name: names[columns.name[i]],
    begin: columns.begin[i] * toSeconds,
    end: columns.end[i] * toSeconds,
  }));
  run.hasPhases = names.some(name => name !== 'reduce');
}

function prepareBuffers(run) {
  const {depth, count} = run.c,
    {message} = run.buffers;
  run.carriedAt = new Uint32Array(run.n + 1);
  for (let i = 0; i < run.n; i++) run.carriedAt[i + 1] = run.carriedAt[i] + count[i];
  const byTime = Array.from(message, (_, change) => change);
  run.order = {time: byTime, steps: [...byTime].sort((a, b) => depth[message[a]] - depth[message[b]] || a - b)};
}

export const isComplete = held => held >= COMPLETE;
export const contributors = held => held % COMPLETE;
export const hueOf = (run, chunk) => run.colors[chunk % run.colors.length];

/** Computes when each new value of a chunk appears, and the value that a message carries. */
export const carriedBy = (run, i, at) => (run.buffers ? run.buffers.carried[run.carriedAt[i] + at] : COMPLETE);

export const bitsIn = held => {
  let bits = 0;
  for (let left = held; left; left >>>= 1) bits += left & 1;
  return bits;
};
