"""Predict NCCL from a system description: its choice at each size, the time, and an interval.

The logarithm of measured / predicted is modeled as Student's t with two degrees of freedom, whose tails are far heavier
than a normal distribution's. The interval's width depends on the size and the number of nodes. It is larger for a
guessed NIC rate, degraded hardware, or a property that no checked system has. The widths are calibrated on systems
whose authors no fit has used (``benchmarks.studies.nccl_unseen``). Leave-one-author-out errors are too small for this,
because the model's structure was chosen with all authors.

>>> from simcomm.nccl.descriptions import describe_system
>>> system = describe_system("mine", {"nodes": 1, "gpus": 8, "gpu": "A100 SXM"})
>>> prediction = predict_collective(system, "all_reduce", 2**30)
>>> prediction.algorithm, prediction.protocol, prediction.low < prediction.seconds < prediction.high
('ring', 'simple', True)
"""

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from math import log, sqrt
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from collectives.errors import InputError
from collectives.quoting import suggest
from simcomm.nccl.channels import used_channels
from simcomm.nccl.choice import PAIRWISE, allowed, unmet_settings
from simcomm.nccl.communicator import Communicator, among_others, depends_on_cpu, is_seen_without, make_communicator
from simcomm.nccl.descriptions import System, put_aside, read_systems
from simcomm.nccl.parameters import Floats, Parameters, host_factors, read_parameters
from simcomm.nccl.rings import rank_rings
from simcomm.nccl.settings import NcclSettings, level_rank
from simcomm.nccl.timing import candidates, mpi_microseconds, predict_microseconds

COVERAGE = 0.8
SIZES = (2.0**13, 2.0**20, 2.0**27)  # bytes, in the middle of each size class
WIDTHS_FILE = Path(__file__).parent / "intervals.toml"
UNCHECKED = 1.2  # factor on the width, outside the checked systems
NOT_VALIDATED = "the model was not validated with"  # beginning of the note on such a system
GUESSED = 1.15  # factor for a guessed NIC rate
DEGRADED = 1.4  # factor if the source says that the system is slower than it should be


@lru_cache(maxsize=1024)
def outside_checked(system: System, version: tuple[int, int] | None = None) -> tuple[str, ...]:
    """Return a phrase for each property of a system that no other system with checked predictions has.

    The properties are the network together with the link inside a node, the GPU generation on that link, GPUs per node,
    nodes, and NCCL's version. ``version`` replaces the version in the description.

    >>> from simcomm.nccl.descriptions import describe_preset
    >>> outside_checked(describe_preset("dgx-h100", 64, 8))
    ('64 nodes with ib (up to 20 were)',)
    """
    is_mpi = system.gpu.generation == "cpu"
    others = [other for other in _checked() if other.slug != system.slug and (other.gpu.generation == "cpu") == is_mpi]
    nodes, local = system.nccl_nodes, system.ranks // system.nccl_nodes
    inside = f"{system.link} inside a node"
    joined = [
        other for other in others if (other.nccl_nodes > 1) == (nodes > 1) and (nodes == 1 or other.net == system.net)
    ]
    alike = [other for other in others if local == 1 or (other.link == system.link and other.gpus > 1)]
    phrases = []
    if not any(local == 1 or other.link == system.link for other in joined):
        phrases.append(" and ".join([f"{system.net} between nodes"] * (nodes > 1) + [inside] * (local > 1)))
    if alike and system.gpu.generation not in {other.gpu.generation for other in alike}:
        phrases.append(f"{system.gpu.generation} GPUs" + (f" with {inside}" if local > 1 else ""))
    phrases += _beyond(
        local, [other.ranks // other.nccl_nodes for other in alike], f"GPUs of a node with {system.link}"
    )
    phrases += _beyond(nodes, [other.nccl_nodes for other in joined], f"nodes with {system.net}")
    return (*phrases, *([] if is_mpi else _outside_versions(version or system.version, others)))


def _beyond(count: int, checked: Sequence[int], quantity: str) -> list[str]:
    return [f"{count} {quantity} (up to {max(checked)} were)"] if checked and count > max(checked) else []


def _outside_versions(version: tuple[int, int], others: Sequence[System]) -> list[str]:
    known = [other.version for other in others]
    words = [".".join(map(str, release)) for release in (version, min(known), max(known))]
    return [] if min(known) <= version <= max(known) else [f"NCCL {words[0]} ({words[1]} to {words[2]} were)"]


@cache
def _checked() -> tuple[System, ...]:
    hidden = put_aside()
    return tuple(system for slug, system in read_systems().items() if slug not in hidden and not system.skip)


class LogLimits(NamedTuple):
    """The distances in log time from the prediction to the ends of its 80 % interval, at the sizes in ``SIZES``."""

    below: tuple[float, ...]
    above: tuple[float, ...]


class NcclWidths(NamedTuple):
    one_node: LogLimits
    several: LogLimits


@cache
def read_widths() -> NcclWidths:
    tables = tomllib.loads(WIDTHS_FILE.read_text(encoding="utf-8"))
    return NcclWidths(
        *(LogLimits(tuple(tables[name]["below"]), tuple(tables[name]["above"])) for name in NcclWidths._fields)
    )


@lru_cache(maxsize=64)
def _stretch(coverage: float) -> float:
    if not 0 < coverage < 1:
        raise InputError(f"coverage must be between 0 and 1, such as 0.8, not {coverage!r}")
    return _quantile(coverage) / _quantile(COVERAGE)


def _quantile(coverage: float) -> float:
    """Return the two-sided quantile of Student's t with two degrees of freedom."""
    return coverage * sqrt(2 / (1 - coverage**2))


def log_limits(comm: Communicator, sizes: Floats, *, has_like: bool = True, coverage: float = 0.8) -> Floats:
    """Return the distances in log time from the prediction to the ends of its interval, as [2, sizes].

    Row 0 is below the prediction, row 1 above. ``coverage`` is the share of measurements that the interval should
    contain. Pass ``has_like=False`` if ``outside_checked`` names a property. Raise InputError if the coverage is
    invalid.
    """
    limits = read_widths().one_node if comm.nodes == 1 else read_widths().several
    base = np.array([np.interp(np.log(sizes), [log(size) for size in SIZES], side) for side in limits])
    result: Floats = base * widening(comm, has_like=has_like) * _stretch(coverage)
    return result


def widening(comm: Communicator, *, has_like: bool) -> float:
    """Return the factor that widens the interval for unchecked, degraded or partly guessed systems."""
    wider = (1.0 if has_like else UNCHECKED) * (GUESSED if comm.nic_is_guessed else 1.0)
    return wider * (DEGRADED if comm.system.degraded else 1.0)


COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", *PAIRWISE)
DEFAULTS = NcclSettings()


@dataclass(frozen=True)
class NcclCandidate:
    """An algorithm with a protocol, its predicted time, and the reason why NCCL chooses it or does not."""

    algorithm: str
    protocol: str
    seconds: float | None  # None if NCCL cannot use it
    tuner_seconds: float | None
    allowed: bool
    reason: str  # why it is not allowed, or not chosen


@dataclass(frozen=True)
class NcclPrediction:
    """The prediction of a collective of one size: seconds with an 80 % interval, and NCCL's choice."""

    seconds: float
    low: float
    high: float
    algorithm: str  # "pairs" for messages between pairs, "mpi" on processors
    protocol: str
    channels: int
    candidates: tuple[NcclCandidate, ...]
    rings: tuple[tuple[int, ...], ...]  # orders of ranks
    notes: tuple[str, ...]


def predict_seconds(
    system: System,
    collective: str,
    sizes: ArrayLike,
    *,
    settings: NcclSettings = DEFAULTS,
    parameters: Parameters | None = None,
) -> Floats:
    """Return the time in seconds of a collective at sizes in bytes, as nccl-tests counts them.

    Raise InputError for an unknown collective, a size below 1 byte, or a system with a single GPU or no network.
    """
    nbytes = _check_call(collective, sizes)
    values = parameters or read_parameters()
    return _seconds(make_communicator(system, settings), system.cluster, collective, nbytes, values)


def predict_among_others(
    part: System,
    system: System,
    groups: tuple[tuple[int, ...], ...],
    collective: str,
    sizes: ArrayLike,
    *,
    settings: NcclSettings = DEFAULTS,
) -> Floats:
    """Return the time in seconds of a collective that several groups of a host's GPUs run at the same time.

    Each of ``groups`` lists GPU numbers. ``part`` describes one group alone, and ``system`` all GPUs of its hosts.
    Raise InputError as ``predict_seconds`` does.
    """
    nbytes = _check_call(collective, sizes)
    comm = among_others(make_communicator(part, settings), system, settings, groups)
    return _seconds(comm, part.cluster, collective, nbytes, read_parameters())


def _seconds(comm: Communicator, cluster: str | None, collective: str, nbytes: Floats, values: Parameters) -> Floats:
    predict = mpi_microseconds if comm.generation == "cpu" else predict_microseconds
    return predict(comm, collective, nbytes, values) * host_factors(cluster, comm.nodes, nbytes, values) / 1e6


def interval_log_limits(
    system: System, sizes: ArrayLike, *, coverage: float = 0.8, settings: NcclSettings = DEFAULTS
) -> Floats:
    """Return the distances in log time from the prediction to the ends of its interval, as [2, sizes].

    Row 0 is below the prediction, row 1 above. ``coverage`` is the share of measurements that the interval should
    contain.
    """
    comm = make_communicator(system, settings)
    has_like = not outside_checked(system, comm.version)
    return log_limits(comm, np.asarray(sizes, np.float64), has_like=has_like, coverage=coverage)


def predict_collective(
    system: System,
    collective: str,
    size_bytes: int,
    *,
    settings: NcclSettings = DEFAULTS,
) -> NcclPrediction:
    """Return NCCL's choice and time for a collective of ``size_bytes`` on a system.

    Raise InputError as ``predict_seconds`` does.
    """
    sizes = _check_call(collective, [size_bytes])
    comm = make_communicator(system, settings)
    seconds = float(predict_seconds(system, collective, sizes, settings=settings)[0])
    below, above = np.exp(interval_log_limits(system, sizes, settings=settings))[:, 0].tolist()
    listed = _list_candidates(comm, collective, sizes, read_parameters())
    chosen = next((candidate for candidate in listed if candidate.reason == CHOSEN), None)
    if chosen is not None:
        algorithm, protocol = chosen.algorithm, chosen.protocol
    elif comm.generation == "cpu":
        algorithm, protocol = "mpi", ""
    else:
        message = size_bytes if collective == "send_recv" else size_bytes / comm.ranks
        algorithm, protocol = "pairs", "ll" if message <= LL_THRESHOLD else "simple"
    return NcclPrediction(
        seconds=seconds,
        low=seconds / below,
        high=seconds * above,
        algorithm=algorithm,
        protocol=protocol,
        channels=int(used_channels(comm, algorithm, protocol, sizes)[0]) if chosen else 1,
        candidates=listed,
        rings=rank_rings(comm),
        notes=(*_notes(system, comm), *notes_of_settings(comm, collective)),
    )


CHOSEN = "NCCL's tuner finds it fastest"
MEANINGS = {  # assumptions for keys that are not stated
    ("layout", "switch"): "all GPUs are behind one PCIe switch and share its lanes",
    ("layout", "switches"): "the GPUs are behind several PCIe switches",
    ("layout", "socket"): "all GPUs are on ports of one CPU",
    ("layout", "two"): "the GPUs are on two CPUs, without PCIe switches",
    ("procs", "single"): "one process drives all GPUs of a host",
    ("procs", "per_gpu"): "each GPU has its own process",
}
REACHES = {  # assumptions on P2P over PCIe that no key states and no variable sets
    "NVL": "GPUs use host memory, the default of GeForce drivers",
    "PXB": "GPUs use P2P over PCIe switches and host memory otherwise, NCCL's default",
    "PHB": "GPUs use P2P within a CPU and host memory otherwise, NCCL's default",
    "SYS": "all GPUs of a host use P2P, NCCL's default",
}

LL_THRESHOLD = 16384  # bytes of a message between two ranks: NCCL_P2P_LL_THRESHOLD in src/enqueue.cc of NVIDIA/nccl


def _check_call(collective: str, sizes: ArrayLike) -> Floats:
    if collective not in COLLECTIVES:
        raise InputError(f"unknown collective {collective!r}; {suggest(collective, COLLECTIVES)}")
    nbytes = np.atleast_1d(np.asarray(sizes, np.float64))
    if not np.isfinite(nbytes).all() or (nbytes < 1).any():
        raise InputError(f"the size must be at least 1 byte, not {nbytes.min():g}")
    return nbytes


def _list_candidates(
    comm: Communicator, collective: str, sizes: Floats, values: Parameters
) -> tuple[NcclCandidate, ...]:
    if comm.generation == "cpu" or collective in PAIRWISE:
        return ()
    choices = candidates(comm, collective, sizes, values)
    ranked = sorted(
        choices.tuner, key=lambda choice: (-float(choices.weights[choice][0]), float(choices.tuner[choice][0]))
    )
    open_ = [
        NcclCandidate(
            *choice,
            float(choices.times[choice][0]) / 1e6,
            float(choices.tuner[choice][0]) / 1e6,
            True,
            CHOSEN if choice == ranked[0] else f"the tuner finds {ranked[0][0]} with {ranked[0][1]} faster",
        )
        for choice in ranked
    ]
    closed = [NcclCandidate(*c, None, None, False, reason) for c, reason in allowed(comm, collective).items() if reason]
    return (*open_, *closed)


def _notes(system: System, comm: Communicator) -> tuple[str, ...]:
    known = ("nccl",) if comm.settings.version else ()
    guesses = {"nccl": f"NCCL's version (nccl) is a guess: {'.'.join(map(str, system.version))}",
               "nic": f"the rate of a host's NICs (nic) is a guess: {system.nic:g} GB/s"}  # fmt: skip
    notes = [guesses[key] for key in system.guessed if key not in known]
    defaults = [key for key in ("layout", "procs") if key in system.defaulted and _matters(key, comm)]
    notes += [f"{key} is not stated, so Ringlab assumes that {MEANINGS[key, getattr(system, key)]}" for key in defaults]
    if "pcie" in system.defaulted and _matters("pcie", comm):
        notes.append(f"pcie is not stated, so Ringlab assumes PCIe {system.pcie}.0, the GPU's maximum")
    if "gdr" in system.defaulted and comm.network is not None and comm.network.gdr and comm.host.link == "pcie":
        notes.append("gdr is not stated, so Ringlab assumes GPUDirect RDMA")
    notes += _notes_on_p2p(system, comm)
    if outside := outside_checked(system, comm.version):
        notes.append(f"{NOT_VALIDATED} {' or '.join(outside)}, so the interval is wider")
    if system.degraded:
        notes.append("the source of the measurements reports that this system was slower than expected")
    return tuple(notes)


def _notes_on_p2p(system: System, comm: Communicator) -> list[str]:
    level = comm.settings.p2p_level
    if not _matters("p2p", comm):
        return []
    if level and system.p2p_refused and level_rank(level) > level_rank("NVL"):
        return [f"NCCL_P2P_LEVEL={level} has no effect: the driver rejects P2P over PCIe (p2p_refused)"]
    if level and is_seen_without(system) and level_rank(comm.host.p2p) > level_rank("NVL"):
        assumption = f"p2p = false was observed; NCCL_P2P_LEVEL={level} is assumed to enable P2P"
        return [f"{assumption}; if the driver rejects P2P, set p2p_refused = true"]
    is_stated = not {"p2p", "p2p_refused"} <= system.defaulted
    if is_stated or comm.settings.p2p_disable or level or system.p2p_level:
        return []
    notes = [f"p2p is not stated, so Ringlab assumes that {REACHES[comm.host.p2p]}"]
    if depends_on_cpu(system, comm.settings):
        version = ".".join(map(str, comm.version))
        notes.append(
            f"cpu is not stated, so Ringlab assumes Intel; with an AMD CPU, NCCL {version} uses P2P between all GPUs "
            "of a host"
        )
    return notes


def notes_of_settings(comm: Communicator, collective: str) -> list[str]:
    """Return a note for each of NCCL_ALGO and NCCL_PROTO that excludes all candidates."""
    return [
        f"{setting} excludes all candidates for {collective}, so NCCL before 2.24 falls back to rings"
        for setting in unmet_settings(comm, collective)
    ]


def _matters(key: str, comm: Communicator) -> bool:
    if key == "procs":
        return comm.host.gpus > 1
    return comm.host.link in ("pcie", "bridge") and comm.host.gpus > 1
