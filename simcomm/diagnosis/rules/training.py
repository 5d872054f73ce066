"""A training step: waiting for data, a rank that computes longer, collectives that nothing hides, steps that differ."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from statistics import median

import numpy as np

from collectives.costs.bounds import bus_factor
from collectives.records.trace import Trace
from simcomm.diagnosis.evidence.causes import Cause
from simcomm.diagnosis.evidence.expectation import DiagnosedCase
from simcomm.diagnosis.evidence.facts import FilePlace, KernelShare, ProfiledCall, ProfiledRanks, RunTrace, StepTime
from simcomm.diagnosis.evidence.profiled_step import COMPUTING as KERNELS
from simcomm.diagnosis.evidence.profiled_step import NOTHING
from simcomm.nccl.predict import COLLECTIVES, predict_seconds

LOADING = ("data", "load", "fetch", "next batch", "__next__")
COMPUTING = ("forward", "backward", "optimizer")
SLOWER = 1.2  # times the middle of all ranks
LATE = 0.1  # of a step
EXPOSED = 0.2  # of a step
IDLE = 0.2  # of the critical path
OF_NCCL = 0.3  # of the time of all kernels
LARGE = 2**20  # bytes of a collective whose rate is the links'


def find_loading(case: DiagnosedCase) -> Iterator[Cause]:
    """Yield that steps wait for data, by a log or by spans that are called so."""
    times = case.facts.of(StepTime)
    data, step = (sum(one.seconds for one in times if one.part == part) for part in ("data", "step"))
    if times and step > 0 and 0.12 < data / max(step, data) < 1:
        worst = max((one for one in times if one.part == "data"), key=lambda one: one.seconds)
        yield _loading(data / max(step, data), worst.place)
    for found in case.facts.of(RunTrace):
        seconds = phase_seconds(found.trace)
        whole = step_seconds(found.trace)
        waiting = _loading_seconds(seconds)
        if whole and waiting > 0.12 * whole:
            yield _loading(min(0.95, waiting / whole), found.place)


def find_kernels_of_nccl(case: DiagnosedCase) -> Iterator[Cause]:
    """Yield that NCCL's kernels take much of a GPU's time, by the table of torch's profiler."""
    kernels = [one for one in case.facts.of(KernelShare) if one.name.startswith(("nccl", "rccl"))]
    share = sum(one.share for one in kernels)
    if share > OF_NCCL:
        most = max(kernels, key=lambda one: one.share)
        yield Cause(
            "slow-collectives",
            f"NCCL's kernels take {share:.0%} of the GPU's time, {most.name.partition('(')[0]} {most.share:.0%}",
            most.place,
            "give the traces of all ranks to see who waits for whom; then fewer bytes between hosts (HSDP, larger "
            "batches, accumulation), and nccl-tests of that size beside them",
            0.65,
        )


def _loading(share: float, place: FilePlace) -> Cause:
    return Cause(
        "data-loading",
        f"{share:.0%} of a step waits for data",
        place,
        "more workers (num_workers), persistent_workers, pin_memory and prefetch; or decode the data once beforehand",
        0.9,
        1 / (1 - share),
    )


def is_training(trace: Trace) -> bool:
    """Return whether a Trace has phases of a training, rather than the reductions of one collective."""
    return any(span.name != "reduce" for span in trace.spans)


def phase_seconds(trace: Trace) -> dict[str, dict[int, float]]:
    """Return the seconds of a step that each rank spends in each phase, as the middle over steps."""
    spent: dict[tuple[str, int], dict[int, float]] = defaultdict(lambda: defaultdict(float))
    for span in trace.spans:
        spent[span.name, span.rank][span.collective] += span.end - span.begin
    found: dict[str, dict[int, float]] = defaultdict(dict)
    for (name, rank), steps in spent.items():
        found[name][rank] = median(steps.values())
    return dict(found)


def _loading_seconds(phases: Mapping[str, Mapping[int, float]]) -> float:
    """Return the seconds of a step that wait for data, as the middle over ranks."""
    return sum(median(each.values()) for name, each in phases.items() if any(word in name.lower() for word in LOADING))


def _computing_seconds(phases: Mapping[str, Mapping[int, float]]) -> dict[int, float]:
    """Return the seconds of a step that each rank computes."""
    ranks = dict.fromkeys(rank for name in COMPUTING for rank in phases.get(name, {}))
    return {rank: sum(phases.get(name, {}).get(rank, 0.0) for name in COMPUTING) for rank in ranks}


def step_seconds(trace: Trace) -> float:
    """Return how long a step lasts, as the middle over ranks and steps; 0 where there is none."""
    bounds: dict[tuple[int, int], list[float]] = {}
    for span in trace.spans:
        edge = bounds.setdefault((span.rank, span.collective), [span.begin, span.end])
        edge[0], edge[1] = min(edge[0], span.begin), max(edge[1], span.end)
    return median(end - begin for begin, end in bounds.values()) if bounds else 0.0


def find_straggler(case: DiagnosedCase) -> Iterator[Cause]:
    """Yield the rank that computes longer than the others, for which they wait in each collective.

    A GPU's kernels say it, else the phases of its host.
    """
    step = case.profiled_step
    if step is not None and len(step.streams.get(KERNELS, {})) > 1:
        profiled = case.facts.of(ProfiledRanks)[0]
        hosts = {one.rank: one.host for one in profiled.profiles}
        yield from _straggler(step.streams[KERNELS], hosts, step.seconds, profiled.place)
        return
    for found in case.facts.of(RunTrace):
        own = _computing_seconds(phase_seconds(found.trace))
        yield from _straggler(own, dict(enumerate(found.trace.hosts)), step_seconds(found.trace), found.place)


def _straggler(own: Mapping[int, float], hosts: Mapping[int, str], whole: float, place: FilePlace) -> Iterator[Cause]:
    """Yield the rank whose computing, in seconds of a step that lasts ``whole``, is longer than the others'."""
    if len(own) > 1:
        worst = max(own, key=own.__getitem__)
        usual = median(value for rank, value in own.items() if rank != worst)
        if own[worst] > SLOWER * usual and usual > 0:
            host = hosts.get(worst, "")
            gain = whole / max(whole - (own[worst] - usual), whole * 0.05) if whole else own[worst] / usual
            yield Cause(
                "slow-rank",
                f"rank {worst}{f' on {host}' * bool(host)} computes {own[worst] / usual:.2g} times as long as the "
                f"others, which wait for it",
                place,
                "look at that GPU's clock, power cap, temperature and ECC errors (nvidia-smi -q), and at what else "
                "runs on its host",
                0.9,
                gain,
            )


def find_late_rank(case: DiagnosedCase) -> Iterator[Cause]:
    """Yield the rank that comes last to the collectives: it waits least in them, and the others for it.

    The kernels of GPUs say it, also of process groups; else the phases of hosts.
    """
    step = case.profiled_step
    if step is not None and step.waited:
        worst = max(step.waited, key=step.waited.__getitem__)
        idle = step.streams[NOTHING]
        usual = median(seconds for rank, seconds in idle.items() if rank != worst)
        why = f"; on its GPU nothing runs for {idle[worst] / step.seconds:.0%} of it" * (idle[worst] > SLOWER * usual)
        if step.waited[worst] > LATE * step.seconds:
            yield _late(worst, step.waited[worst], step.seconds, case.facts.of(ProfiledRanks)[0].place, why)
            return
    for found in case.facts.of(RunTrace):
        waits = phase_seconds(found.trace).get("sync", {})
        whole = step_seconds(found.trace)
        if len(waits) < 2 or not whole:
            continue
        last = min(waits, key=waits.__getitem__)
        lost = median(seconds for rank, seconds in waits.items() if rank != last) - waits[last]
        if lost > LATE * whole and waits[last] < 0.5 * (lost + waits[last]):
            yield _late(last, lost, whole, found.place)


def _late(rank: int, lost: float, whole: float, place: FilePlace, why: str = "") -> Cause:
    """Return that a rank is late, for which others wait for so long of a step that lasts ``whole``, in seconds."""
    return Cause(
        "late-rank",
        f"rank {rank} comes last to the collectives: the others wait {lost / whole:.0%} of a step for it{why}",
        place,
        "look at what it does before them: loading, logging, a longer batch, a slower host",
        0.8,
        whole / max(whole - lost, 0.05 * whole),
    )


def step_parts(trace: Trace) -> dict[str, float]:
    """Return where the seconds of a step go: the path of its slowest rank, as the middle over steps."""
    seconds, whole = phase_seconds(trace), step_seconds(trace)
    own = _computing_seconds(seconds)
    computing = median(own.values()) if own else 0.0
    alone = sorted(exposed_by_rank(trace).values()) or [0.0]
    found = {
        "waits for data": _loading_seconds(seconds),
        "computes": computing,
        "waits for the slowest rank": max(own.values(), default=0.0) - computing,
        "waits for late ranks": median(alone) - alone[0],
        "collectives, nothing beside them": alone[0],
    }
    return {**found, "all else": max(0.0, whole - sum(found.values()))}


def find_exposed(case: DiagnosedCase) -> Iterator[Cause]:
    """Yield that collectives take a part of the step in which nothing else is computed."""
    calls = case.facts.of(ProfiledCall)
    traces = case.facts.of(RunTrace)
    for found in traces[:1]:
        whole = step_seconds(found.trace)
        steps = max(1, len({span.collective for span in found.trace.spans}))
        ranks = {one.rank for one in calls}
        exposed = (
            median(sum(one.exposed for one in calls if one.rank == rank) / steps for rank in ranks) if ranks else None
        )
        exposed = exposed_sync(found.trace) if exposed is None else exposed
        if whole and exposed / whole > EXPOSED:
            share = exposed / whole
            yield Cause(
                "exposed-collectives",
                f"collectives take {share:.0%} of a step with nothing computed beside them",
                found.place,
                "overlap: smaller buckets (bucket_cap_mb), gradient_as_bucket_view, prefetch of FSDP; fewer or smaller "
                "gradients: bf16, accumulation",
                0.75,
                1 / max(0.05, 1 - share),
            )


def exposed_sync(trace: Trace) -> float:
    """Return the seconds of a step in which a rank is in sync and in no other phase, as the middle over ranks."""
    by_rank = exposed_by_rank(trace)
    return median(by_rank.values()) if by_rank else 0.0


def exposed_by_rank(trace: Trace) -> dict[int, float]:
    """Return the seconds of a step in which each rank is in sync and in no other phase."""
    by_rank: dict[int, float] = {}
    steps = max(1, len({span.collective for span in trace.spans}))
    for rank in range(trace.world_size):
        own = [span for span in trace.spans if span.rank == rank]
        busy = [(span.begin, span.end) for span in own if span.name in COMPUTING]
        total = 0.0
        for span in own:
            if span.name == "sync":
                hidden = sum(max(0.0, min(end, span.end) - max(begin, span.begin)) for begin, end in busy)
                total += max(0.0, span.end - span.begin - hidden)
        if own:
            by_rank[rank] = total / steps
    return by_rank


def find_slow_collectives(case: DiagnosedCase) -> Iterator[Cause]:
    """Yield that collectives of a profile run far below what NCCL's model says of the machine."""
    rates = [
        (one.end - one.begin, due, one)
        for one, due in profiled_instances(case)
        if due is not None and one.nbytes >= LARGE
    ]
    slow = [(measured, predicted, one) for measured, predicted, one in rates if measured > 2.5 * predicted]
    if len(rates) >= 3 and len(slow) > len(rates) / 2:
        measured, predicted, one = slow[len(slow) // 2]
        yield Cause(
            "slow-collectives",
            f"{one.name} of {one.nbytes / 2**20:.4g} MiB takes {measured * 1e3:.3g} ms, {measured / predicted:.2g} "
            f"times what NCCL should need here",
            one.place,
            "measure with nccl-tests: a rank that comes late makes a collective long, a link makes all of them slow",
            0.6,
            float(np.median([each / due for each, due, _ in slow])),
        )


def profiled_instances(case: DiagnosedCase) -> Iterator[tuple[ProfiledCall, float | None]]:
    """Yield of each collective the call of the rank that waits for nobody, with its predicted seconds if known."""
    groups: dict[tuple[str, int, int, str, int], list[ProfiledCall]] = defaultdict(list)
    order: dict[tuple[int, str, int, int, str], int] = defaultdict(int)
    for one in case.facts.of(ProfiledCall):
        key = one.name, one.nbytes, one.ranks, one.group
        groups[(*key, order[one.rank, *key])].append(one)
        order[one.rank, *key] += 1
    due: dict[tuple[object, ...], float | None] = {}
    for place, same in groups.items():
        one, what = min(same, key=lambda each: each.end - each.begin), place[:-1]
        if what not in due:
            due[what] = _due_seconds(case, one)
        yield one, due[what]


def _due_seconds(case: DiagnosedCase, one: ProfiledCall) -> float | None:
    """Return what NCCL should need for a collective of all ranks, or of a group inside a host behind NVSwitches.

    None where it is not known: what other groups take of NICs and PCIe at the same time the model does not tell.
    """
    if case.machine.missing or not one.nbytes or one.name not in COLLECTIVES or one.ranks < 2:
        return None
    system = case.machine.system()
    if one.ranks != system.ranks:
        hosts = {each.rank: each.host for found in case.facts.of(ProfiledRanks) for each in found.profiles}
        is_inside = len({hosts.get(rank) for rank in one.members}) == 1 and len(set(hosts.values())) == system.nodes
        if system.link != "nvswitch" or not is_inside:
            return None
        system = case.machine.system(nodes=1, gpus=one.ranks)
    return float(predict_seconds(system, one.name, [one.nbytes])[0])


def busbw(one: ProfiledCall) -> float:
    """Return the busbw of a profiled collective in GB/s, 0 where its bytes are not known."""
    if one.name not in COLLECTIVES or not one.nbytes or one.end <= one.begin:
        return 0.0
    return one.nbytes * bus_factor(one.name, one.ranks) / (one.end - one.begin) / 1e9


def find_idle_gpus(case: DiagnosedCase) -> Iterator[Cause]:
    """Yield that nothing runs on the GPUs for a part of the critical path: they wait for their hosts."""
    found = case.profiled_step
    share = found.share_of_path(NOTHING) if found else 0.0
    if found and share > IDLE:
        place, idle = case.facts.of(ProfiledRanks)[0].place, found.streams[NOTHING]
        worst = max(idle, key=idle.__getitem__)
        is_alone = len(idle) > 1 and idle[worst] > 2 * median(one for rank, one in idle.items() if rank != worst)
        where, who = (
            (f"the GPU of rank {worst}", "it waits for its host")
            if is_alone
            else ("the GPUs", "they wait for their hosts")
        )
        yield Cause(
            "idle-gpu",
            f"nothing runs on {where} for {share:.0%} of the critical path: {who}",
            place,
            "launches: torch.compile, CUDA graphs, a larger batch; syncs: .item(), .cpu() and prints in the step; the "
            "loader: num_workers, pin_memory",
            0.7,
            1 / max(0.05, 1 - share),
        )


def find_uneven_steps(case: DiagnosedCase) -> Iterator[Cause]:
    """Yield that some steps take far longer than the others."""
    for found in case.facts.of(RunTrace):
        ends: dict[int, list[float]] = defaultdict(list)
        for span in found.trace.spans:
            ends[span.collective] += [span.begin, span.end]
        lengths = {step: max(times) - min(times) for step, times in ends.items()}
        if len(lengths) < 6:
            continue
        usual = median(lengths.values())
        long = [step for step, length in lengths.items() if length > 1.5 * usual]
        lost = sum(lengths[step] - usual for step in long)
        if lost > 0.1 * sum(lengths.values()):
            yield Cause(
                "uneven-steps",
                f"{len(long)} of {len(lengths)} steps take more than 1.5 times the usual {usual:.3g} s",
                found.place,
                "look at what happens in them: loader, checkpoint, garbage collection, another job",
                0.6,
                sum(lengths.values()) / (sum(lengths.values()) - lost),
            )


RULES = (
    find_loading,
    find_kernels_of_nccl,
    find_straggler,
    find_late_rank,
    find_exposed,
    find_slow_collectives,
    find_uneven_steps,
    find_idle_gpus,
)
