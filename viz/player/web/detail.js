// The messages of a selected rank on pages of many ranks: one row per peer, from columns inflated on first use.

import {area, clipTo, fade, write} from './canvas.js';
import {chunkColors, color} from './colors.js';
import {inflateColumn} from './columns.js';
import {many, max, min, ordered, rate, size, time} from './format.js';
import {view} from './state.js';

const MOST_PEERS = 24, // shown, those with the most bytes first
  NAMED = 12,
  HUES = chunkColors(9);

/** Returns the selected rank's messages; null while groups or rows of ranks are shown. */
export const detailOf = run => (run.detail && run.detail.rank === view.rank ? run.detail : null);

async function inflateListed(run) {
  const columns = Object.entries(run.aggregate.listed.columns).map(async ([name, [type, length, text]]) => [
    name,
    await inflateColumn({type, length, text}),
  ]);
  run.listed = Object.fromEntries(await Promise.all(columns));
}

/** Returns a rank's messages. The page may not contain all of them. */
export async function openRank(run, rank) {
  if (rank < 0) return;
  if (!run.listed) await inflateListed(run);
  const {src, dst, bytes} = run.listed,
    own = [],
    sums = new Map();
  for (let i = 0; i < src.length; i++) {
    if (src[i] !== rank && dst[i] !== rank) continue;
    const peer = src[i] === rank ? dst[i] : src[i];
    own.push(i);
    sums.set(peer, (sums.get(peer) || 0) + bytes[i]);
  }
  const most = [...sums].sort((a, b) => b[1] - a[1]).slice(0, MOST_PEERS);
  const peers = most.map(([peer]) => peer).sort((a, b) => a - b);
  const row = new Map(peers.map((peer, at) => [peer, at]));
  run.detail = {rank, own, peers, row, others: sums.size - peers.length};
}

const beginOf = (run, i) => run.listed.begin[i] * run.tick;
const endOf = (run, i) => run.listed.end[i] * run.tick;

/** Returns the description of the lanes, shown above them and read to screen readers. */
export function aboutRows(run) {
  const {rank, own, peers, others} = detailOf(run),
    {ranks} = run.aggregate.listed;
  if (!own.length && ranks)
    return `the messages of rank ${rank} are not in this file, only those of ranks ${some(ranks)}`;
  const rest = others ? `, without ${many(others, 'other peer')}` : '';
  return `rank ${rank}, one row per peer: dark if received, pale if sent; ranks ${some(peers)}${rest}`;
}

const some = ranks =>
  ranks.length > NAMED ? `${ranks.slice(0, NAMED).join(', ')} and ${ranks.length - NAMED} more` : ordered([...ranks]);

export function paintDetail(g, box, toPixel) {
  const {run, x, y, w, h, lane} = box,
    {rank, own, peers, row} = detailOf(run),
    {src, dst, chunk} = run.listed;
  const high = 0.42 * min(lane, 46);
  peers.forEach((peer, at) => {
    area(g, at % 2 ? color.paper : color.pane, x, y + at * lane, w, lane);
    if (lane > 8 || at % 3 === 0) write(g, `rank ${peer}`, x - 8, y + (at + 0.5) * lane, 10.5, color.grey, 'right');
  });
  clipTo(g, x, y - 2, w + 14, h + 4);
  for (const i of own) {
    const receives = dst[i] === rank,
      at = row.get(receives ? src[i] : dst[i]);
    if (at === undefined) continue;
    const left = toPixel(box, beginOf(run, i)),
      right = toPixel(box, endOf(run, i)),
      middle = y + (at + 0.5) * lane;
    if (right < x || left > x + w) continue;
    fade(g, receives ? 1 : 0.45);
    area(g, HUES[chunk[i] % 9], left, receives ? middle : middle - high, max(right - left - 0.8, 0.5), high);
  }
  fade(g, 1);
}

/** Describes a row's message at a time: the received message in the lower half, the sent one in the upper half. */
export function aboutDetail(run, {rank: row, x, isLow}) {
  const {rank, own, peers} = detailOf(run),
    {src, dst, bytes, chunk, step} = run.listed,
    [from, to] = isLow ? [peers[row], rank] : [rank, peers[row]];
  const i = own.find(one => src[one] === from && dst[one] === to && beginOf(run, one) <= x && x < endOf(run, one));
  if (i === undefined) return `rank ${from} sends nothing to rank ${to} now`;
  const begin = beginOf(run, i),
    end = endOf(run, i);
  return [
    `rank ${from} → ${to}   step ${step[i]}, chunk ${chunk[i]}`,
    `${size(bytes[i])} in ${time(end - begin)}: ${rate(bytes[i] / (end - begin))}`,
    `${time(begin)} to ${time(end)}`,
  ].join('\n');
}
