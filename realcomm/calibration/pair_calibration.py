"""Measure messages between two emulated hosts, to predict emulated clusters."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain

from collectives.records.calibration import Calibration, CrowdRound, PairProbes
from collectives.records.environment import threads_per_rank
from collectives.training.workload import Training
from realcomm.calibration.blocks import fit_line
from realcomm.calibration.calibration import calibrate
from realcomm.emulation.network import EmulatedNetwork
from realcomm.emulation.plan import plan_pair
from realcomm.launching.launcher import launch
from realcomm.launching.types import Progress

WORKERS = "realcomm.calibration.pair_worker"  # imports torch, so only ranks import it

CROWDS = (4, 8)  # ranks on two hosts, half of them on each
CROWD_BANDWIDTH = 100e6 / 8  # least bytes/s, so that a crowd waits for cores and not for links


def calibrate_pair(
    bandwidth: float, *, crowd: PairProbes | None = None, timeout: float = 300.0, progress: Progress | None = None
) -> PairProbes:
    """Emulate two hosts that are connected by a switch, and return measurements of the messages between them.

    ``bandwidth`` is the rate of both links in bytes/s. This takes about 40 seconds at 50 Mbit/s. To halve the time,
    pass an earlier result as ``crowd``. Its measurements with 4 and 8 ranks are then reused. Raise RunFailed if this
    machine cannot emulate a network or if packets are lost. Raise RankFailed and TimedOut as ``launch`` does.

    >>> calibrate_pair(50e6 / 8).send_buffer  # doctest: +SKIP
    954112
    """
    with EmulatedNetwork(plan_pair(bandwidth)) as network:
        probes: PairProbes = launch(
            f"{WORKERS}:probe_pair", 2, bandwidth, timeout=timeout, progress=progress, network=network
        )[0]
    if crowd is not None:
        return replace(probes, crowds=crowd.crowds)
    rounds = (probe_crowd(bandwidth, ranks, timeout=timeout, progress=progress) for ranks in CROWDS)
    return replace(probes, crowds=[*chain.from_iterable(rounds)])


def probe_crowd(
    bandwidth: float, ranks: int = CROWDS[-1], *, timeout: float = 300.0, progress: Progress | None = None
) -> list[CrowdRound]:
    """Measure messages among ``ranks`` ranks on two emulated hosts, with half of the ranks on each host.

    ``bandwidth`` is the rate of both links in bytes/s, and is raised to at least 100 Mbit/s. Use more ranks than cores.
    This takes about 10 seconds. Raise the same errors as ``calibrate_pair``.
    """
    with EmulatedNetwork(plan_pair(max(bandwidth, CROWD_BANDWIDTH), ranks)) as network:
        rounds: list[CrowdRound] = launch(
            f"{WORKERS}:time_crowd", ranks, timeout=timeout, progress=progress, network=network
        )[0]
    return rounds


def calibrate_emulated(
    bandwidth: float,
    ranks: int,
    trainings: Sequence[Training] = (),
    *,
    timeout: float = 300.0,
    progress: Progress | None = None,
) -> Calibration:
    """Return a calibration for predictions of emulated clusters with ``ranks`` ranks.

    Messages are measured between two emulated hosts whose links have ``bandwidth`` bytes/s. Steps of ``trainings`` are
    measured in ``ranks`` processes without an emulated network. Raise the same errors as ``calibrate_pair``.

    >>> calibrate_emulated(50e6 / 8, ranks=4).pair.window  # doctest: +SKIP
    147696
    """
    pair = calibrate_pair(bandwidth, timeout=timeout, progress=progress)
    if trainings:
        calibration = calibrate(ranks, trainings, all_sizes=False, timeout=timeout, progress=progress)
        return with_pair(calibration, pair)
    return from_pair(pair, ranks)


def from_pair(pair: PairProbes, ranks: int) -> Calibration:
    """Compute a calibration for ``ranks`` emulated hosts from measurements of two hosts, without compute times."""
    threads = threads_per_rank(ranks)
    one_way, both_ways, reduction = map(fit_line, (pair.one_way, pair.exchange, pair.reduction))
    return with_pair(Calibration(ranks, threads, one_way, both_ways, reduction), pair)


def with_pair(calibration: Calibration, pair: PairProbes) -> Calibration:
    """Return a copy of ``calibration`` that contains the measurements ``pair`` of two emulated hosts.

    Part i of the calibration gets part i of ``pair``, or ``pair`` if it has no parts. If only ``pair`` has parts, the
    calibration gets as many.
    """
    alone = replace(calibration, parts=[])
    pair_parts = pair.parts or [pair] * len(calibration.parts)
    compute_parts = calibration.parts or [alone] * len(pair_parts)
    parts = [replace(compute, pair=part) for compute, part in zip(compute_parts, pair_parts, strict=True)]
    return replace(calibration, pair=pair, parts=parts)
