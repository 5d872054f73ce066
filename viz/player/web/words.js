// The texts of the page: headline, caption and tooltips.

import {buffersAt, completeness} from './buffers.js';
import {activeAt, isOver, isStuckAtOnce, isTimed, lengthOf, total} from './clock.js';
import {aboutRows, detailOf} from './detail.js';
import {capital, clockTime, digits, floor, many, max, min, ordered, percent, rate, size, time} from './format.js';
import {contributors, carriedBy, isComplete} from './run.js';
import {data, firstRun, isRacing, linkName, nodeName, partner, shownRuns, view} from './state.js';

const KEEPS = 'The receiver replaces its partial sum';

/** Returns the sentence at the top. It describes one run, or compares two. */
export function headline() {
  if (isRacing()) return raceWords();
  const run = firstRun(),
    other = partner(run);
  const bytes = run.nbytes ? `${size(run.nbytes)} ` : '',
    result = run.complete ? `${time(run.elapsed)} ${bytes && `for ${bytes}`}` : `${bytes}`;
  const end = run.complete ? '' : ', never finished',
    kind = run.kind === 'predicted' ? 'predicted by simulation' : run.kind;
  const sentence = `${run.name}: ${result}on ${many(data.ranks, 'rank')}, ${kind}${end}.`;
  return other ? `${sentence} ${capital(other.kind)}: ${time(other.elapsed)}.` : sentence;
}

function raceWords() {
  const [fast, slow] = shownRuns().toSorted((a, b) => a.elapsed - b.elapsed),
    times = slow.elapsed / fast.elapsed;
  if (times < 1.02) return `${fast.name} and ${slow.name} take the same time.`;
  const words = `${fast.name} is ${digits(times, 2)} times as fast as ${slow.name}`;
  const sends = fast.kind === slow.kind && slow.sent > 1.1 * fast.sent;
  return words + (sends ? `: its busiest rank sends ${size(fast.sent)}, not ${size(slow.sent)}.` : '.');
}

/** Returns the step, counted from 1, and the effect on the data, for the middle of the circle. */
export function phaseWords(run, active) {
  if (isOver(run)) return run.complete ? ['done', time(run.elapsed)] : ['never finished', ''];
  if (!active.length) return run.hasPhases ? [spansNow(run), ''] : ['', ''];
  const depths = active.map(i => run.c.depth[i]),
    low = min(...depths) + 1,
    high = max(...depths) + 1;
  const step = `step${high > low ? `s ${low} to ${high}` : ` ${low}`} of ${run.steps}`;
  const added = active.filter(i => run.c.reduces[i]).length,
    whole = active.filter(i => isComplete(carriedBy(run, i, 0))).length;
  if (!run.buffers) return [step, ''];
  if (added === active.length) return [step, 'sums grow'];
  if (added) return [step, 'sums grow and circulate'];
  return [step, whole === active.length ? `${finished(run)}s circulate` : 'chunks circulate'];
}

const finished = run => (run.hasSums ? 'finished sum' : 'finished chunk');

function spansNow(run) {
  const names = run.spans.filter(span => span.begin <= view.x && view.x < span.end).map(span => span.name);
  return ordered([...new Set(names)]);
}

/** Describes the current moment in one or two sentences. */
export function caption() {
  const runs = shownRuns(),
    done = runs.filter(isOver);
  if (isRacing() && isTimed() && done.length === 1) {
    const other = runs.find(run => run !== done[0]);
    return `${done[0].name} is done; ${other.name} is at ${percent(view.x / other.elapsed)}.`;
  }
  return isRacing() && !data.teaches ? runs.map(raceCaption).join('; ') + '.' : captionOf(firstRun());
}

/** Describes the current moment of one of two runs. */
function raceCaption(run) {
  const buffer = run.chunks > 1 ? many(run.chunks, 'chunk') : 'one whole buffer',
    x = min(view.x, lengthOf(run));
  if (view.x <= 0) return `${run.name}: ${buffer} on each rank`;
  const words = run.aggregate ? [percent(x / lengthOf(run))] : phaseWords(run, activeAt(run, x));
  return `${run.name}: ${words.filter(Boolean).join(', ') || 'nothing is in flight'}`;
}

function captionOf(run) {
  if (run.aggregate) return aggregateWords(run);
  if (!run.count && !run.complete) return `Nothing happens. ${faultWords(run)}`;
  if (view.x <= 0) return startWords(run);
  if (isOver(run)) return endWords(run);
  const faults = faultWords(run),
    active = activeAt(run, min(view.x, lengthOf(run)));
  const spans = run.hasPhases && isTimed() ? spansNow(run) : '',
    phases = spans && `${capital(spans)}. `;
  const now = active.length ? activeWords(run, active) : phases ? '' : 'Nothing is in flight. ';
  return phases + now + (data.teaches ? waitWords(run) : '') + (faults && ` ${faults}`);
}

function aggregateWords(run) {
  const {bins, reached} = run.aggregate,
    bin = min(bins - 1, floor((view.x / run.elapsed) * bins));
  return (
    `${percent(view.x / run.elapsed)} of the run, up to step ${min(reached[bin] + 1, run.steps)} of ${run.steps}. ` +
    `${many(run.count, 'message')} are shown as ${bins} bins of ${time(run.elapsed / bins)}.` +
    (detailOf(run) ? ` ${capital(aboutRows(run))}.` : '') +
    (faultWords(run) && ` ${faultWords(run).trim()}`)
  );
}

function startWords(run) {
  if (!run.buffers) return 'At the start.';
  const {start, chunks} = run.buffers,
    holders = [];
  for (let rank = 0; rank < data.ranks; rank++) {
    if (start.subarray(rank * chunks, (rank + 1) * chunks).some(held => contributors(held))) holders.push(rank);
  }
  const why = run.isRing ? ', so that all links work at once' : '',
    cut = chunks > 1 ? `, cut into ${many(chunks, 'chunk')}, one color each${why}` : '',
    buffer = size(run.nbytes);
  if (holders.length === 1) return `At the start only rank ${holders[0]} holds data: ${buffer}${cut}.`;
  const isAll = start.every(held => contributors(held));
  return `At the start every rank holds only its own ${isAll ? buffer : `part of ${buffer}`}${cut}.`;
}

function endWords(run) {
  if (!run.complete) return `Never finished. ${faultWords(run)}`;
  const done = `Done after ${time(run.elapsed)}`,
    cells = buffersAt(run, lengthOf(run));
  if (!cells) return `${done}.`;
  const {wanted, complete} = completeness(run, cells);
  if (wanted !== complete) return `${done}.`;
  return run.title.startsWith('all_reduce')
    ? `${done}: every rank holds the sum of the data of all ${data.ranks} ranks.`
    : `${done}: every chunk is where it belongs.`;
}

/** Names the ranks that have failed or wait forever by now. */
function faultWords(run) {
  if (!isTimed()) return '';
  const failed = run.failed.filter(([, at]) => at <= view.x).map(([rank]) => `rank ${rank}`);
  const waits = run.unfinished
    .filter(([, , , , since]) => since <= view.x)
    .slice(0, 3)
    .map(
      ([rank, peer, sends, step]) =>
        `rank ${rank} waits in step ${step} of its program to ${sends ? 'send to' : 'receive from'} rank ${peer}`,
    );
  const more = run.unfinished.length > 3 && waits.length === 3 ? `, and ${run.unfinished.length - 3} more wait` : '';
  return (
    (failed.length ? `${capital(ordered(failed))} ${run.wrong ? 'went wrong' : 'failed'}. ` : '') +
    (waits.length ? `Blocked forever: ${waits.join('; ')}${more}.` : '')
  );
}

function activeWords(run, active) {
  const {c} = run,
    [first] = active,
    most = max(...active.map(i => c.bytes[i])),
    step = stepWords(run, active);
  const added = active.filter(i => c.reduces[i]).length;
  if (active.length === 1) {
    const what = added ? 'which adds it to its own' : 'which keeps it';
    return `${step}. Rank ${c.src[first]} sends ${size(most)} to rank ${c.dst[first]}, ${what}; all others wait.`;
  }
  const upTo = active.every(i => c.bytes[i] === most) ? '' : 'up to ',
    round = run.isRing && step.startsWith('Step') ? ', each to the next rank' : '';
  const what =
    added === active.length
      ? `partial sums. The receiver adds its own part; the size stays ${size(most)}`
      : added
        ? 'some are added, some kept'
        : keptWords(run, active);
  if (run.turn && run.isRing && active.every(i => c.depth[i] === run.turn)) {
    return `${step}. Halfway: each rank has one finished sum and passes it on. ${KEEPS}.`;
  }
  return `${step}. ${many(active.length, 'message')} of ${upTo}${size(most)} at once${round}: ${what}.`;
}

/** Describes messages that are not added. */
function keptWords(run, active) {
  const isWhole = run.buffers && active.every(i => isComplete(carriedBy(run, i, 0)));
  if (isWhole && run.hasSums) return `finished sums. ${KEEPS}`;
  return `${isWhole ? 'finished chunks' : 'chunks'}, which the receiver keeps`;
}

/** Names the step, or the steps if some ranks are ahead. */
function stepWords(run, active) {
  const [step] = phaseWords(run, active);
  return step.startsWith('steps') ? `Some ranks are ahead: ${step}` : capital(step);
}

/** Returns the texts of the clock: the current time or step, and the whole. */
export const clockWords = () =>
  isStuckAtOnce()
    ? ['', '']
    : isTimed()
    ? [clockTime(view.x, total()), `of ${clockTime(total(), total())}`]
    : [`step ${min(floor(view.x + 1e-6) + 1, total())}`, `of ${total()}`];

/** Returns the legend as text, for races, networks and narrow screens. */
export function keyWords(run) {
  if (!run.buffers?.exact) return '';
  const colors = run.chunks > 1 ? `Color: one of ${many(run.chunks, 'chunk')}. ` : '',
    full = run.hasSums ? `the sum of all ${data.ranks} ranks` : 'complete';
  return `${colors}Stripes: ranks that contributed. Full: ${full}. Framed: a message in flight.`;
}

export function aboutMessage(run, i) {
  const {c} = run,
    took = run.end[i] - run.begin[i],
    last = c.chunk[i] + c.count[i] - 1;
  const chunks = c.count[i] > 1 ? `chunks ${c.chunk[i]}–${last}` : `chunk ${c.chunk[i]}`;
  const via = run.routes[c.route[i]].slice(0, -1).map(link => nodeName(data.links.dst[link]));
  const lines = [
    `rank ${c.src[i]} → ${c.dst[i]}   step ${c.depth[i] + 1}, ${chunks}, ${c.reduces[i] ? 'added' : 'kept'}`,
    `${size(c.bytes[i])} in ${time(took)}: ${rate(c.bytes[i] / took)}`,
    `${time(run.begin[i])} to ${time(run.end[i])}`,
  ];
  if (via.length) lines.push(`via ${via.join(', ')}`);
  const bits = run.buffers?.exact ? contributors(carriedBy(run, i, 0)) : 0;
  if (bits) lines.push(`holds data of ${whose(bits)}`);
  const [sent, received] = waitsOf(run, i);
  const [src, dst] = [`rank ${c.src[i]}`, `rank ${c.dst[i]}`];
  if (sent > 0) lines.push(`${src} waited${inLine(c.src_line, i)} ${time(sent)} for ${dst} to receive`);
  if (received > 0) lines.push(`${dst} waited${inLine(c.dst_line, i)} ${time(received)} for ${src} to send`);
  return lines.join('\n');
}

/** Returns the seconds that sender and receiver of a message waited for each other; 0 for rounding errors. */
function waitsOf(run, i) {
  const {src_waits: src, dst_waits: dst} = run.c;
  return src ? [src[i], dst[i]].map(ticks => (ticks > 1000 ? ticks * run.tick : 0)) : [0, 0];
}

/** Returns the program's line that posts a send or receive, if known. */
const inLine = (lines, i) => (lines && lines[i] ? ` in line ${lines[i]}` : '');

/** Explains the waits for late peers: of the selected rank, or of two ranks. */
function waitWords(run) {
  if (!isTimed()) return '';
  const {src, dst, src_line: sends, dst_line: receives} = run.c,
    why = new Map();
  for (let i = 0; i < run.n; i++) {
    if (run.begin[i] <= view.x) continue;
    const [sent, received] = waitsOf(run, i);
    if (sent > 0 && run.begin[i] - sent <= view.x)
      why.set(src[i], `waits${inLine(sends, i)}: rank ${dst[i]} does not receive yet`);
    if (received > 0 && run.begin[i] - received <= view.x)
      why.set(dst[i], `waits${inLine(receives, i)}: rank ${src[i]} does not send yet`);
  }
  const reasons = [...why].filter(([rank]) => view.rank < 0 || rank === view.rank).slice(0, 2),
    more = view.rank < 0 ? why.size - reasons.length : 0;
  const words = reasons.map(([rank, reason]) => ` Rank ${rank} ${reason}.`).join('');
  return words + (more > 0 ? ` So ${more > 1 ? 'do' : 'does'} ${many(more, 'more rank')}.` : '');
}

/** Lists the reasons why a rank waits: messages in flight, and peers that are not ready. */
function whyRankWaits(run, rank) {
  if (!run.c || !isTimed()) return [];
  const {src, dst, chunk} = run.c,
    why = new Set();
  for (let i = 0; i < run.n; i++) {
    if ((src[i] !== rank && dst[i] !== rank) || run.end[i] <= view.x) continue;
    const [sent, received] = waitsOf(run, i);
    if (run.begin[i] <= view.x) {
      why.add(dst[i] === rank ? `receives chunk ${chunk[i]} from rank ${src[i]}` : `sends to rank ${dst[i]}`);
    } else if (dst[i] === rank && run.begin[i] - received <= view.x) {
      why.add(`waits for rank ${src[i]}, which sends later`);
    } else if (src[i] === rank && run.begin[i] - sent <= view.x) {
      why.add(`waits for rank ${dst[i]}, which receives later`);
    }
  }
  return [...why].slice(0, 4);
}

function whose(bits) {
  const ranks = Array.from({length: data.ranks}, (_, rank) => rank).filter(rank => (bits >> rank) & 1);
  return ranks.length === data.ranks ? 'all ranks' : `rank${ranks.length > 1 ? 's' : ''} ${ordered(ranks)}`;
}

export function aboutRank(run, rank) {
  const lines = [`rank ${rank} on ${data.nodes[rank]}`],
    cells = run.c && buffersAt(run, min(view.x, lengthOf(run)));
  if (cells) {
    const n = run.chunks,
      own = cells.subarray(rank * n, rank * n + n);
    lines.push(`${own.filter(isComplete).length} of ${many(n, 'chunk')} complete`);
  }
  lines.push(...whyRankWaits(run, rank));
  return lines.join('\n');
}

export function aboutLink(run, link) {
  const {bandwidth, latency} = data.links;
  const lines = [linkName(link), `${rate(bandwidth[link])}, ${time(latency[link])} latency`];
  lines.push(`${percent(run.use[link])} of its capacity over the whole run`);
  return lines.join('\n');
}

/** Returns the run as text, one line per step, for screen readers and for print. */
export function story(run) {
  const lines = [headline(), `${run.limits.heading}. ${run.limits.sentence}`];
  if (run.used) lines.push(`The most used links: ${ordered(run.cables.slice(0, 6).map(cableWords))}.`);
  if (run.aggregate) return [...lines, ...groupStory(run), ...faultStory(run)];
  if (run.hasPhases) lines.push(...phaseStory(run));
  lines.push(...stepStory(run), ...faultStory(run));
  lines.push(run.complete ? `Done after ${time(run.elapsed)}.` : 'Never finished.');
  return lines;
}

const cableWords = ({name, use, peak}) => `${name}, ${percent(use)} on average and ${percent(peak)} at peak`;

/** Describes the bytes that each group has received after each quarter of the run. */
function groupStory(run) {
  const {groups, sizes, got, bins} = run.aggregate;
  return groups.map((name, i) => {
    const shares = [1, 2, 3, 4].map(quarter => percent(got[i * bins + floor((quarter * bins) / 4) - 1] / 255));
    return `${name}, ${many(sizes[i], 'rank')}: after each quarter of the run it has ${ordered(shares)} of its bytes.`;
  });
}

/** Returns the mean time of each phase of a training. */
function phaseStory(run) {
  const spans = new Map();
  for (const {name, begin, end} of run.spans) {
    const [seconds, n] = spans.get(name) || [0, 0];
    spans.set(name, [seconds + end - begin, n + 1]);
  }
  return [`Mean time per rank: ${ordered([...spans].map(([name, [seconds, n]]) => `${name} ${time(seconds / n)}`))}.`];
}

/** Describes ranks that failed and ranks that wait forever. */
function faultStory(run) {
  const failed = run.failed.map(([rank, at]) => `Rank ${rank} ${run.wrong ? 'has a program error' : 'fails'} at ${time(at)}.`);
  const waits = run.unfinished.map(([rank, peer, sends, step, since]) => {
    const action = `to ${sends ? 'send to' : 'receive from'} rank ${peer}`;
    return `Rank ${rank} waits from ${time(since)} on in step ${step} of its program ${action}.`;
  });
  return [...failed, ...waits];
}

function stepStory(run) {
  const {c} = run,
    lines = [];
  for (let step = 0; step < min(run.steps, 40); step++) {
    const messages = [];
    for (let i = 0; i < run.n; i++) if (c.depth[i] === step) messages.push(i);
    const bytes = messages.reduce((sum, i) => sum + c.bytes[i], 0);
    const whom =
      messages
        .slice(0, 8)
        .map(i => `${c.src[i]} to ${c.dst[i]}`)
        .join(', ') + (messages.length > 8 ? ' and others' : '');
    const added = messages.filter(i => c.reduces[i]).length;
    const some = added ? `${added} of them added, the others kept` : 'kept',
      how = added === messages.length ? "added to the receiver's value" : some;
    const sent = `${many(messages.length, 'message')}, ${size(bytes)} in all, ${how}`;
    lines.push(`Step ${step + 1}, done at ${time(run.stepEnd[step])}: ${sent}; ranks ${whom}.`);
  }
  if (run.steps > 40) lines.push(`And ${run.steps - 40} more steps.`);
  return lines;
}
