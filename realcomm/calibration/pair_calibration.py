"""Measure two emulated hosts, by which the transport of an emulated cluster is calibrated."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import networkx as nx

from collectives.records.calibration import Calibration, CrowdRound, PairProbes
from collectives.records.environment import threads_per_rank
from collectives.training.workload import Training
from realcomm.calibration.blocks import fit_line
from realcomm.calibration.calibration import calibrate
from realcomm.emulation.network import emulate
from realcomm.emulation.plan import BURST, MTU
from realcomm.launching.launcher import launch
from realcomm.launching.types import Progress

WORKERS = "realcomm.calibration.pair_worker"  # which only ranks import, as torch comes with it

CROWDS = (4, 8)  # ranks on two hosts, half of them on each
CROWD_BANDWIDTH = 100e6 / 8  # bytes/s, at least: what a crowd takes of the cores is not to wait for its links


def calibrate_pair(
    bandwidth: float, *, crowd: PairProbes | None = None, timeout: float = 300.0, progress: Progress | None = None
) -> PairProbes:
    """Build two hosts on a switch with links of ``bandwidth`` bytes/s, measure messages between them, remove all.

    What more ranks than cores take is that of ``crowd``, if that is given: of another pair measured before. Takes some
    twenty seconds at 50 Mbit/s, and forty with a crowd. Raise RunFailed where nothing can be emulated here or the
    network lost packets, and RankFailed and TimedOut as ``launch`` does.

    >>> calibrate_pair(50e6 / 8).send_buffer  # doctest: +SKIP
    954112
    """
    asked = PairProbes(
        bandwidth=bandwidth,
        mtu=MTU,
        burst=BURST,
        one_way=[],
        chains=[],
        exchange=[],
        send_done=[],
        arrived=[],
        window=0,
        in_flight=0,
        rtt=0.0,
        send_buffer=0,
        reduction=[],
    )
    with emulate(_Pair(bandwidth, 2)) as network:
        found: PairProbes = launch(
            f"{WORKERS}:probe_pair", 2, asked, timeout=timeout, progress=progress, network=network
        )[0]
    if crowd is not None:
        return replace(found, crowds=crowd.crowds)
    rounds = (probe_crowd(bandwidth, ranks, timeout=timeout, progress=progress) for ranks in CROWDS)
    return replace(found, crowds=[*chain.from_iterable(rounds)])


def probe_crowd(
    bandwidth: float, ranks: int = CROWDS[-1], *, timeout: float = 300.0, progress: Progress | None = None
) -> list[CrowdRound]:
    """Measure what more ranks than cores take, half of them on each of two hosts. Raise as ``calibrate_pair`` does.

    Takes some ten seconds.
    """
    with emulate(_Pair(max(bandwidth, CROWD_BANDWIDTH), ranks)) as network:
        found: list[CrowdRound] = launch(
            f"{WORKERS}:time_crowd", ranks, timeout=timeout, progress=progress, network=network
        )[0]
    return found


def calibrate_emulated(
    bandwidth: float,
    ranks: int,
    trainings: Sequence[Training] = (),
    *,
    timeout: float = 300.0,
    progress: Progress | None = None,
) -> Calibration:
    """Measure what predicts ``ranks`` emulated hosts: a pair of them, and trainings' phases in ``ranks`` processes.

    ``bandwidth`` is of the pair's links in bytes/s. The pair never takes part in what is predicted. Raise as
    ``calibrate_pair`` does.

    >>> calibrate_emulated(50e6 / 8, ranks=4).pair.window  # doctest: +SKIP
    147696
    """
    pair = calibrate_pair(bandwidth, timeout=timeout, progress=progress)
    if trainings:
        here = calibrate(ranks, trainings, all_sizes=False, timeout=timeout, progress=progress)
        return with_pair(here, pair)
    return from_pair(pair, ranks)


def from_pair(pair: PairProbes, ranks: int) -> Calibration:
    """Return a calibration for so many emulated hosts in which only a pair of them was measured, and no computing."""
    threads = threads_per_rank(ranks)
    one_way, both_ways, reduction = map(fit_line, (pair.one_way, pair.exchange, pair.reduction))
    return with_pair(Calibration(ranks, threads, one_way, both_ways, reduction), pair)


def with_pair(calibration: Calibration, pair: PairProbes) -> Calibration:
    """Return what was measured of computing and of a pair together, and so each part of both."""
    alone = replace(calibration, parts=[])
    of_pair = pair.parts or [pair] * len(calibration.parts)
    of_computing = calibration.parts or [alone] * len(of_pair)
    parts = [replace(here, pair=own) for here, own in zip(of_computing, of_pair, strict=True)]
    return replace(calibration, pair=pair, parts=parts)


@dataclass(frozen=True)
class _Pair:
    """Two hosts on one switch; ranks are on one and the other by turns."""

    bandwidth: float  # bytes/s
    world_size: int
    title: str = "a pair of hosts"

    @property
    def hosts(self) -> tuple[str, ...]:
        """The host of each rank."""
        return tuple(f"h{rank % 2}" for rank in range(self.world_size))

    @property
    def graph(self) -> Any:
        """The links, in both directions."""
        graph: nx.DiGraph[str] = nx.DiGraph()
        for host in ("h0", "h1"):
            for src, dst in ((host, "s0"), ("s0", host)):
                graph.add_edge(src, dst, bandwidth=self.bandwidth, latency=0.0)
        return graph

    def router(self) -> "_Pair":
        return self

    def route(self, src: str, dst: str) -> tuple[str, ...]:
        """Return the nodes on the way."""
        return src, "s0", dst
