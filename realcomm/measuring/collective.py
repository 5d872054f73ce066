"""One collective on real processes: what ``simcomm.run`` predicts."""

import tempfile
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median_low

import numpy as np

from collectives.checks import check_cluster
from collectives.declaration import Algorithm
from collectives.errors import InputError
from collectives.proof.verifier import verify
from collectives.records.trace import Message, Span, Trace
from collectives.request import Array, Request, make_request
from collectives.step import Kind, extent
from realcomm.execution.events import Event
from realcomm.launching.launcher import check_launch, launch
from realcomm.launching.types import Progress, Ranks
from realcomm.measuring.measurement import Measurement, RankMeasurement


def run(
    algorithm: str | Algorithm | Request,
    cluster: Ranks,
    nbytes: int | None = None,
    *,
    dtype: str | None = None,
    op: str | None = None,
    root: int | None = None,
    buffers: Sequence[Array] | None = None,
    backend: str = "gloo",
    warmup: int = 2,
    repetitions: int | None = None,
    timeout: float = 300.0,
    progress: Progress | None = None,
) -> Trace:
    """Measure one collective on ``nbytes`` bytes per rank, or on real data: ``buffers``, reduced in place.

    Unless given, the elements are float32, the operator is sum and the root rank 0; a Request in place of the algorithm
    says these itself. One process a rank runs the algorithm: once on inputs whose result is known (``facts["wrong"]``
    counts the elements that differ from it), once on ``buffers`` (one 1-D array of the same length and type per rank),
    ``warmup`` times, and then ``repetitions`` times, or as often as fits in a second. Every repetition begins on all
    ranks at once; ``elapsed`` is the median from first rank's start to last rank's end, and messages and spans are
    those of that repetition. Raises InputError and ProgramError as ``simcomm.run`` does, and RankFailed and TimedOut as
    ``launch``.
    """
    check_cluster(cluster, Ranks)
    request = make_request(algorithm, cluster.world_size, nbytes, dtype=dtype, op=op, root=root, buffers=buffers)
    _check_counts(warmup, repetitions)
    check_launch(cluster.world_size, backend, timeout)
    verify(request.algorithm, cluster.world_size, request.root)
    with _saved(buffers) as inputs:
        measurement = Measurement(request, warmup, repetitions, inputs)
        ranks = launch(_worker, cluster.world_size, measurement, backend=backend, timeout=timeout, progress=progress)
    for buffer, rank in zip(buffers or (), ranks, strict=False):
        buffer[:] = rank.data
    return _as_trace(cluster, measurement, ranks)


def _worker(rank: int, world_size: int, measurement: Measurement) -> RankMeasurement:
    from realcomm.measuring.one_rank import measure  # torch comes with it

    return measure(rank, world_size, measurement)


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


def _as_trace(cluster: Ranks, measurement: Measurement, ranks: list[RankMeasurement]) -> Trace:
    seconds, start, hosts = ranks[0].seconds, ranks[0].begin, list(cluster.hosts)
    facts = {
        "nbytes": float(measurement.request.nbytes),
        "time_min_s": min(seconds),
        "time_max_s": max(seconds),
        "repetitions": float(len(seconds)),
        "wrong": float(sum(rank.wrong for rank in ranks)),
    }
    return Trace(
        measurement.request.algorithm.full_name,
        "measured",
        cluster.world_size,
        median_low(seconds),
        sorted(_messages(measurement, ranks, start), key=lambda message: (message.begin, message.src)),
        sorted(_spans(ranks, start), key=lambda span: (span.begin, span.rank)),
        nodes=list(dict.fromkeys(hosts)),
        hosts=hosts,
        facts=facts,
    )


def _messages(measurement: Measurement, ranks: list[RankMeasurement], start: float) -> Iterator[Message]:
    """Every message from when it was posted to when it was received: the k-th from a to b is the k-th at b from a."""
    arrivals: dict[tuple[int, int, int], deque[Event]] = defaultdict(deque)
    for dst, rank in enumerate(ranks):
        for event in (event for event in rank.events if event.operation.kind.receives):
            arrivals[event.operation.peer, dst, event.channel].append(event)
    chunks, itemsize = measurement.request.algorithm.chunks(len(ranks)), measurement.request.itemsize
    for src, rank in enumerate(ranks):
        for step, op, begin, _, channel in (event for event in rank.events if event.operation.kind is Kind.SEND):
            end = arrivals[src, op.peer, channel].popleft().end
            nbytes = extent(op.chunk, op.count, measurement.request.elements, chunks) * itemsize
            yield Message(src, op.peer, step, op.chunk, nbytes, begin - start, end - start, channel=channel)


def _spans(ranks: list[RankMeasurement], start: float) -> Iterator[Span]:
    """When each rank reduced or copied: both are local work on a buffer, so both are "reduce", as in a prediction."""
    for rank, found in enumerate(ranks):
        for step, op, begin, end, _ in found.events:
            if op.kind.is_local:
                yield Span(rank, "reduce", step, begin - start, end - start)
