"""One collective on real processes: what ``simcomm.run`` predicts."""

import tempfile
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median_low
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from collectives.catalogue import Algorithm, find_algorithm
from collectives.errors import InputError
from collectives.lengths import check_length, rounded_down
from collectives.proof.verifier import verify
from collectives.records.trace import Message, Span, Trace
from collectives.step import Kind, extent
from collectives.workload import check_op, item_bytes
from realcomm.launching.launcher import check_launch, launch
from realcomm.launching.worker import Progress
from realcomm.measuring.records import Event, Measured, Plan

Array = npt.NDArray[Any]


class Ranks(Protocol):
    """What is needed of a cluster: its processes all run on this machine."""

    @property
    def world_size(self) -> int: ...

    @property
    def hosts(self) -> Sequence[str]: ...


def run(
    algorithm: str | Algorithm,
    cluster: Ranks,
    nbytes: int | None = None,
    *,
    dtype: str = "float32",
    op: str = "sum",
    root: int = 0,
    buffers: Sequence[Array] | None = None,
    backend: str = "gloo",
    warmup: int = 2,
    repetitions: int | None = None,
    timeout: float = 300.0,
    progress: Progress | None = None,
) -> Trace:
    """Measure one collective on ``nbytes`` bytes per rank, or on real data: ``buffers``, reduced in place.

    One process a rank runs the algorithm: once on inputs whose result is known (``facts["wrong"]`` counts the elements
    that differ from it), once on ``buffers`` (one 1-D array of the same length and type per rank), ``warmup`` times,
    and then ``repetitions`` times, or as often as fits in a second. Every repetition begins on all ranks at once;
    ``elapsed`` is the median from first rank's start to last rank's end, and messages and spans are those of that
    repetition. Raises InputError and ProgramError as ``simcomm.run`` does, and RankFailed and TimedOut as ``launch``.
    """
    algorithm = find_algorithm(algorithm) if isinstance(algorithm, str) else algorithm
    dtype, n = _shape(algorithm, cluster, nbytes, dtype, buffers)
    check_op(op, dtype)
    check_length(algorithm, n, cluster.world_size)
    _check_counts(warmup, repetitions)
    check_launch(cluster.world_size, backend, timeout)
    verify(algorithm, cluster.world_size, root)
    with _saved(buffers) as inputs:
        plan = Plan(algorithm, n, dtype, op, root, warmup, repetitions, inputs)
        ranks = launch(_worker, cluster.world_size, plan, backend=backend, timeout=timeout, progress=progress)
    for buffer, rank in zip(buffers or (), ranks, strict=False):
        buffer[:] = rank.data
    return _as_trace(cluster, plan, ranks)


def _worker(rank: int, world_size: int, plan: Plan) -> Measured:
    from realcomm.measuring.one_rank import measure  # torch comes with it

    return measure(rank, world_size, plan)


def _shape(
    algorithm: Algorithm, cluster: Ranks, nbytes: int | None, dtype: str, buffers: Sequence[Array] | None
) -> tuple[str, int]:
    """Type and number of the elements of each rank's buffer; sizes are rounded down to whole elements."""
    if buffers is None:
        if nbytes is None or nbytes < 0:
            raise InputError(f"{algorithm.full_name}: nbytes is {nbytes}; give a number of bytes from 0 on, or buffers")
        return dtype, rounded_down(algorithm, nbytes // item_bytes(dtype), cluster.world_size)
    kinds = {(buffer.shape, buffer.dtype.name) for buffer in buffers}
    if len(buffers) != cluster.world_size or len(kinds) != 1 or buffers[0].ndim != 1:
        raise InputError(
            f"{algorithm.full_name}: buffers are {sorted(kinds)}, {len(buffers)} of them; "
            f"{cluster.world_size} of one length and type are needed, each with one dimension"
        )
    return buffers[0].dtype.name, buffers[0].size


def _check_counts(warmup: int, repetitions: int | None) -> None:
    if warmup < 0:
        raise InputError(f"warmup is {warmup}; a number of repetitions from 0 on is needed")
    if repetitions is not None and repetitions < 1:
        raise InputError(f"repetitions is {repetitions}; at least 1 is needed")


@contextmanager
def _saved(buffers: Sequence[Array] | None) -> Iterator[Path | None]:
    """A folder with each rank's buffer in a file, so that every worker reads only its own; gone afterwards."""
    if buffers is None:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="ringlab-") as folder:
        for rank, buffer in enumerate(buffers):
            np.save(Path(folder) / f"{rank}.npy", buffer, allow_pickle=False)
        yield Path(folder)


def _as_trace(cluster: Ranks, plan: Plan, ranks: list[Measured]) -> Trace:
    seconds, start, hosts = ranks[0].seconds, ranks[0].begin, list(cluster.hosts)
    facts = {
        "nbytes": float(plan.n * item_bytes(plan.dtype)),
        "time_min_s": min(seconds),
        "time_max_s": max(seconds),
        "repetitions": float(len(seconds)),
        "wrong": float(sum(rank.wrong for rank in ranks)),
    }
    return Trace(
        plan.algorithm.full_name,
        "measured",
        cluster.world_size,
        median_low(seconds),
        sorted(_messages(plan, ranks, start), key=lambda message: (message.begin, message.src)),
        sorted(_spans(ranks, start), key=lambda span: (span.begin, span.rank)),
        nodes=list(dict.fromkeys(hosts)),
        hosts=hosts,
        facts=facts,
    )


def _messages(plan: Plan, ranks: list[Measured], start: float) -> Iterator[Message]:
    """Every message from when it was posted to when it was received: the k-th from a to b is the k-th at b from a."""
    arrivals: dict[tuple[int, int, int], deque[Event]] = defaultdict(deque)
    for dst, rank in enumerate(ranks):
        for event in (event for event in rank.events if event.operation.kind.receives):
            arrivals[event.operation.peer, dst, event.channel].append(event)
    chunks, itemsize = plan.algorithm.chunks(len(ranks)), item_bytes(plan.dtype)
    for src, rank in enumerate(ranks):
        for step, op, begin, _, channel in (event for event in rank.events if event.operation.kind is Kind.SEND):
            end = arrivals[src, op.peer, channel].popleft().end
            nbytes = extent(op.chunk, op.count, plan.n, chunks) * itemsize
            yield Message(src, op.peer, step, op.chunk, nbytes, begin - start, end - start, channel=channel)


def _spans(ranks: list[Measured], start: float) -> Iterator[Span]:
    """When each rank reduced or copied: both are local work on a buffer, so both are "reduce", as in a prediction."""
    for rank, found in enumerate(ranks):
        for step, op, begin, end, _ in found.events:
            if op.kind.is_local:
                yield Span(rank, "reduce", step, begin - start, end - start)
