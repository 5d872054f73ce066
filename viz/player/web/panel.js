// The bottleneck of the run, from limits.py, with a list of links; or a measured run compared with its prediction.

import {area, clear, write} from './canvas.js';
import {isTimed} from './clock.js';
import {color} from './colors.js';
import {abs, clamp, digits, floor, max, min, percent, rate, round, time} from './format.js';
import {areGroups, data, find, firstRun, linkName, partner, tell, view} from './state.js';
import {keyWords} from './words.js';

const LISTED = 4,
  SAMPLES = 140;

export const element = (tag, words = '') => {
  const made = document.createElement(tag);
  made.textContent = words;
  return made;
};

function row(name, value, share) {
  const button = element('button'),
    meter = element('meter');
  meter.value = clamp(share, 0, 1);
  button.append(element('span', name), element('span', value), meter);
  return button;
}

export function writePanel() {
  const run = firstRun(),
    other = partner(run),
    isMeasured = run.limits.kind === 'unknown';
  const [heading, words] =
    isMeasured && other ? againstPrediction(run, other) : [run.limits.heading, run.limits.sentence];
  find('key').textContent = keyWords(run);
  find('limit-head').textContent = heading;
  find('limit-head').classList.toggle('full', run.standing.length > 0 || run.limits.kind === 'stuck');
  find('limit').textContent = words;
  find('links').replaceChildren(...(isMeasured ? pairRows(run) : cableRows(run)));
  const title = run.isSlow
    ? 'Rate of each link, slowest first'
    : 'Utilization of each link over the whole run';
  const pairs = 'Rate of each pair of ranks, slowest first: bytes divided by the time from begin to end';
  find('links-head').textContent = isMeasured ? (run.n ? pairs : '') : run.used ? title : '';
  const more = isMeasured ? 0 : run.used - LISTED,
    isHidden = !isMeasured && run.used && view.kind === 'talk' && !areGroups(),
    where = isHidden ? '“Show network” shows their positions.' : '';
  find('fine').textContent = `${more > 0 ? `And ${more} more links. ` : ''}${where}`;
  drawUse();
}

function cableRows(run) {
  const share = run.isSlow ? cable => cable.peak : cable => cable.use; // a slow link never reaches the others' rates
  const way = run.isSlow ? 1 : -1,
    known = cable => round(100 * share(cable)),
    byShare = (a, b) => way * (known(a) - known(b)) || a.links[0] - b.links[0];
  const cables = [...run.standing, ...run.cables.slice(run.standing.length).sort(byShare)];
  return cables.slice(0, LISTED).map((cable, at) => {
    const whole = rate(cable.bandwidth),
      words = run.isSlow ? `${rate(cable.peak * cable.bandwidth)} of ${whole}` : `${percent(share(cable))} of ${whole}`;
    const button = row(cable.name, words, share(cable));
    button.classList.toggle('full', at < run.standing.length);
    const isChosen = cable.links.includes(view.link);
    button.setAttribute('aria-pressed', isChosen);
    button.onclick = () => {
      view.link = isChosen ? -1 : cable.links[0];
      if (view.link >= 0 && !areGroups()) view.kind = 'wires';
      writePanel();
      tell.controls();
      tell.draw();
    };
    return button;
  });
}

function pairRows(run) {
  const pairs = new Map();
  for (let i = 0; i < run.n; i++) {
    const name = `rank ${run.c.src[i]} → ${run.c.dst[i]}`,
      pair = pairs.get(name) || {bytes: 0, seconds: 0};
    pair.bytes += run.c.bytes[i];
    pair.seconds += run.end[i] - run.begin[i];
    pairs.set(name, pair);
  }
  const rates = [...pairs].map(([name, {bytes, seconds}]) => [name, bytes / seconds]).sort((a, b) => a[1] - b[1]);
  return rates.slice(0, LISTED).map(([name, speed]) => row(name, rate(speed), speed / rates.at(-1)[1]));
}

/** Compares a measured run with its prediction: total time, and the message with the largest delay at its end. */
function againstPrediction(run, other) {
  const [measured, predicted] = run.kind === 'measured' ? [run, other] : [other, run];
  const key = (c, i) => [c.src[i], c.dst[i], c.step[i], c.chunk[i]].join();
  const ends = new Map(Array.from(predicted.end, (end, i) => [key(predicted.c, i), end]));
  let late = 0,
    latest = -1;
  for (let i = 0; i < measured.n; i++) {
    const by = measured.end[i] - (ends.get(key(measured.c, i)) ?? Infinity);
    if (by > late) [late, latest] = [by, i];
  }
  const off = predicted.elapsed / measured.elapsed - 1;
  const heading = `The prediction is ${digits(abs(off) * 100, 2)} % too ${off < 0 ? 'short' : 'long'}`;
  const times = `${time(predicted.elapsed)} predicted, ${time(measured.elapsed)} measured.`;
  if (latest < 0) return [heading, `${times} No message ends later than predicted.`];
  const {src, dst, depth} = measured.c;
  const which = `rank ${src[latest]} → ${dst[latest]} in step ${depth[latest] + 1}, by ${time(late)}`;
  return [heading, `${times} Largest delay: ${which}.`];
}

/** Draws the utilization over time of the selected link. Default: the bottleneck, or the most used link. */
export function drawUse() {
  const run = firstRun(),
    canvas = find('spark'),
    link = view.link >= 0 ? view.link : (run.cables[0]?.links[0] ?? -1);
  canvas.hidden = link < 0;
  if (link < 0 || !canvas.clientWidth) return;
  const [g, w, h] = clear(canvas),
    top = 14,
    series = run.aggregate ? keptSeries(run, link) : seriesOf(run, link);
  write(g, `${linkName(link)} over time: how full it is`, 0, 6, 11, color.grey);
  if (!series) return;
  area(g, color.cell, 0, top, w, h - top);
  g.fillStyle = run.bad.has(link) ? color.full : color.grey;
  series.forEach((share, i) => {
    const height = (h - top) * clamp(share, 0, 1);
    g.fillRect((i * w) / series.length, h - height, w / series.length + 0.3, height);
  });
  if (isTimed()) area(g, color.go, (view.x / run.elapsed) * w - 1, top, 2, h - top);
}

function keptSeries({aggregate: {links, series, bins}}, link) {
  const at = links.indexOf(link);
  return at < 0 ? null : Array.from(series.subarray(at * bins, (at + 1) * bins), value => value / 255);
}

function seriesOf(run, link) {
  run.series ||= {};
  if (run.series[link]) return run.series[link];
  const series = (run.series[link] = new Float64Array(SAMPLES)),
    through = run.routes.map(route => route.includes(link));
  for (let i = 0; i < run.n; i++) {
    if (!through[run.c.route[i]]) continue;
    const from = (run.begin[i] / run.elapsed) * SAMPLES,
      to = (run.end[i] / run.elapsed) * SAMPLES;
    const share = run.c.bytes[i] / max(run.end[i] - run.begin[i], 1e-15) / data.links.bandwidth[link];
    for (let at = floor(from); at <= min(SAMPLES - 1, floor(to)); at++)
      series[at] += share * max(0, min(to, at + 1) - max(from, at));
  }
  return series;
}
