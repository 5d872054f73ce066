"""Run one collective, or several one after another, on real processes and measure them."""

import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median_low
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from collectives.call import Array, CollectiveCall, make_call
from collectives.checks import check_cluster, check_whole_number
from collectives.declaration import Algorithm
from collectives.errors import InputError, failure_first
from collectives.proof.verifier import verify
from collectives.records.messages import Messages
from collectives.records.spans import Spans
from collectives.records.trace import Trace
from realcomm.execution.events import Event
from realcomm.execution.measured_messages import follow_messages, local_spans
from realcomm.launching.launcher import check_launch, launch
from realcomm.launching.types import Progress, RankNetwork, Ranks

FIGURES = "figures "  # prefix of a progress text with a measurement's figures


@dataclass(frozen=True)
class TimedCall:
    """A collective call to measure, with its warm-up and repetitions."""

    call: CollectiveCall
    warmup: int
    repetitions: int | None  # None: from 5 to 49, to fill about ``total_s``
    inputs: Path | None  # folder of RANK.npy, real data to run the collective on once
    check: bool = True  # whether to check the result on known inputs
    total_s: float = 1.0  # of all repetitions, unless their number is set
    least: int = 5  # number of repetitions, unless their number is set


class RankMeasurement(NamedTuple):
    """One rank's result of a measurement."""

    seconds: list[float]  # of every repetition, from first rank's start to last rank's end; equal on all ranks
    begin: float  # begin of the median repetition
    events: list[Event]  # this rank's events in that repetition
    wrong: int  # elements of this rank that differ from the right result
    data: npt.NDArray[Any] | None  # the result on this rank's part of ``inputs``
    queued_s: float | None = None  # on GPUs: mean time of queued runs, on the slowest rank


class RankFigures(NamedTuple):
    """Statistics of a measurement over all ranks. A repetition lasts from the first rank's start to the last rank's
    end.
    """

    median_s: float
    least_s: float
    most_s: float
    wrong: int  # elements of all ranks that differ from the right result
    queued_s: float | None = None  # on GPUs: mean time of queued runs, as in nccl-tests


WORKERS = "realcomm.measuring.rank_measurement"  # imports torch, so only ranks import it


@failure_first()
def run(
    algorithm: str | Algorithm | CollectiveCall,
    cluster: Ranks,
    nbytes: int | str | None = None,
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
    network: RankNetwork | None = None,
) -> Trace:
    """Measure one collective on this machine, with one process for each rank, and return its trace.

    Each rank's buffer has ``nbytes`` bytes, given as an integer or a string such as "1 MiB". Defaults: float32, sum,
    root 0. If ``algorithm`` is a CollectiveCall, it contains all of these, and they must not be passed. If ``buffers``
    is given, real data is used instead: one 1-D array for each rank, all of equal length and dtype. The arrays contain
    the result afterwards.

    The ranks first run the algorithm on inputs with a known result; ``facts["wrong"]`` counts the elements that differ.
    Then they run it once on ``buffers`` and ``warmup`` times without measuring. Finally they measure ``repetitions``
    runs. Default: an odd number from 5 to 49 that fills about one second. Every repetition starts on all ranks at once.
    ``elapsed`` is the median time in seconds from the first rank's start to the last rank's end. Messages and spans are
    those of the median repetition. On GPUs, they come from an additional repetition, because recording takes time.

    The ranks communicate over ``network``, a network of ``realcomm.emulate``. Default: the loopback. Raise InputError
    and ProgramError as ``simcomm.run`` does, and RankFailed and TimedOut as ``launch`` does.

    >>> trace = run("all_reduce/ring", simcomm.this_machine(ranks=2), nbytes=4096)  # doctest: +SKIP
    >>> trace.facts["nbytes"], trace.facts["wrong"]  # doctest: +SKIP
    (4096.0, 0.0)
    """
    check_cluster(cluster, Ranks)
    call = make_call(algorithm, cluster.world_size, nbytes, dtype=dtype, op=op, root=root, buffers=buffers)
    check_whole_number("warmup", warmup, at_least=0)
    if repetitions is not None:
        check_whole_number("repetitions", repetitions, at_least=1)
    check_launch(cluster.world_size, backend, timeout)
    if call.algorithm.has_program:
        verify(call.algorithm, cluster.world_size, call.root)
    elif backend != call.algorithm.backend:
        name = call.algorithm.full_name
        raise InputError(f"{name} is NCCL's own collective, but the backend is {backend}; use backend nccl")
    with _save(buffers) as inputs:
        measurement = TimedCall(call, warmup, repetitions, inputs)
        ranks = launch(
            *(f"{WORKERS}:measure_rank", cluster.world_size, measurement),
            backend=backend,
            timeout=timeout,
            progress=progress,
            network=network,
        )
    for buffer, rank in zip(() if buffers is None else buffers, ranks, strict=False):
        buffer[:] = rank.data
    return make_trace(cluster, measurement, ranks)


@contextmanager
def _save(buffers: Sequence[Array] | None) -> Iterator[Path | None]:
    """Write each rank's buffer to a file, so that a worker reads only its own buffer; yield the temporary folder."""
    if buffers is None:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="ringlab-") as folder:
        for rank, buffer in enumerate(buffers):
            np.save(Path(folder) / f"{rank}.npy", buffer, allow_pickle=False)
        yield Path(folder)


def make_trace(cluster: Ranks, measurement: TimedCall, ranks: list[RankMeasurement]) -> Trace:
    """Combine all ranks' measurements into one trace."""
    call, seconds, start, hosts = measurement.call, ranks[0].seconds, ranks[0].begin, list(cluster.hosts)
    events = [rank.events for rank in ranks]
    messages = follow_messages(call, events, start) if call.algorithm.has_program else ()
    facts = {
        "nbytes": float(call.nbytes),
        "time_min_s": min(seconds),
        "time_max_s": max(seconds),
        "repetitions": float(len(seconds)),
        "wrong": float(sum(rank.wrong for rank in ranks)),
    }
    return Trace(
        call.algorithm.full_name,
        "measured",
        cluster.world_size,
        median_low(seconds),
        Messages.of(messages).sorted(),
        Spans.of(local_spans(events, start)).sorted(),
        nodes=list(dict.fromkeys(hosts)),
        hosts=hosts,
        facts=facts,
        root=call.root,
        chunks=call.algorithm.chunks(cluster.world_size),
    ).of_program(call.algorithm)


def measure_all(
    measurements: Sequence[TimedCall],
    ranks: int,
    report: Callable[[TimedCall, RankFigures], None],
    *,
    backend: str = "gloo",
    timeout: float = 600.0,
    network: RankNetwork | None = None,
) -> list[list[RankMeasurement]]:
    """Measure collective calls with ``ranks`` processes; pass each call and its statistics to ``report``.

    Return one list for each call, with the results of all ranks. Raise RankFailed, TimedOut and InputError as
    ``launch`` does. ``report`` has then already been called for all finished measurements.
    """

    def receive(rank: int, done: int, total: int, text: str) -> None:
        if text.startswith(FIGURES):
            report(measurements[done], RankFigures(*json.loads(text.removeprefix(FIGURES))))

    by_rank: list[list[RankMeasurement]] = launch(
        *(f"{WORKERS}:measure_each", ranks, list(measurements)),
        backend=backend,
        timeout=timeout,
        progress=receive,
        network=network,
    )
    return [list(of_ranks) for of_ranks in zip(*by_rank, strict=True)]
