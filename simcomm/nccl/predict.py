"""What NCCL does on a described system: its choice at each size, the time it takes, and how sure that is.

>>> from simcomm.nccl.descriptions import describe_system
>>> system = describe_system("mine", {"nodes": 1, "gpus": 8, "gpu": "A100 SXM"})
>>> found = predict_collective(system, "all_reduce", 2**30)
>>> found.algorithm, found.protocol, found.low < found.seconds < found.high
('ring', 'simple', True)

How far it may be off: the logarithm of measured / predicted is taken as Student's t with two degrees of freedom, whose
tails are far heavier than a normal distribution's. Its width is by what a description tells: one node or several,
whether it lies outside what was checked, whether the NICs' rate was guessed. The widths are chosen on systems of
authors that no fit has seen (``benchmarks.studies.nccl_unseen``): those of authors that are left out of a fit, but not
of the choice of the model's structure, would say too little.
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
SIZES = (2.0**13, 2.0**20, 2.0**27)  # bytes, in the middle of the small, the middle and the large class
WIDTHS_FILE = Path(__file__).parent / "intervals.toml"
UNCHECKED = 1.2  # times, outside what was checked
GUESSED = 1.15  # where the NICs' rate was guessed
DEGRADED = 1.4  # where the source says that the system is slower than it should be


@lru_cache(maxsize=1024)
def outside_checked(system: System, version: tuple[int, int] | None = None) -> tuple[str, ...]:
    """Return in words what no other system that the fit saw has; empty where a system is like those.

    Looked at are the network with the link inside, the GPUs' generation on that link, GPUs of a node, nodes, and NCCL's
    version, the description's unless another is given. A node is what NVLink or a host joins.

    >>> from simcomm.nccl.descriptions import describe_preset
    >>> outside_checked(describe_preset("dgx-h100", 1, 8))
    ()
    >>> outside_checked(describe_preset("dgx-h100", 64, 8))
    ('64 nodes with ib (up to 20 were)',)
    """
    is_mpi = system.gpu.generation == "cpu"
    others = [one for one in _checked() if one.slug != system.slug and (one.gpu.generation == "cpu") == is_mpi]
    nodes, local = system.nccl_nodes, system.ranks // system.nccl_nodes
    inside = f"{system.link} inside a node"
    joined = [one for one in others if (one.nccl_nodes > 1) == (nodes > 1) and (nodes == 1 or one.net == system.net)]
    alike = [one for one in others if local == 1 or (one.link == system.link and one.gpus > 1)]
    found = []
    if not any(local == 1 or one.link == system.link for one in joined):
        found.append(" and ".join([f"{system.net} between nodes"] * (nodes > 1) + [inside] * (local > 1)))
    if alike and system.gpu.generation not in {one.gpu.generation for one in alike}:
        found.append(f"{system.gpu.generation} GPUs" + (f" with {inside}" if local > 1 else ""))
    found += _beyond(local, [one.ranks // one.nccl_nodes for one in alike], f"GPUs of a node with {system.link}")
    found += _beyond(nodes, [one.nccl_nodes for one in joined], f"nodes with {system.net}")
    return (*found, *([] if is_mpi else _outside_versions(version or system.version, others)))


def _beyond(count: int, checked: Sequence[int], what: str) -> list[str]:
    return [f"{count} {what} (up to {max(checked)} were)"] if checked and count > max(checked) else []


def _outside_versions(version: tuple[int, int], others: Sequence[System]) -> list[str]:
    known = [one.version for one in others]
    words = [".".join(map(str, one)) for one in (version, min(known), max(known))]
    return [] if min(known) <= version <= max(known) else [f"NCCL {words[0]} ({words[1]} to {words[2]} were)"]


@cache
def _checked() -> tuple[System, ...]:
    """Return the project's own systems that fits see."""
    hidden = put_aside()
    return tuple(system for slug, system in read_systems().items() if slug not in hidden and not system.skip)


class LogLimits(NamedTuple):
    """How far a measurement may be below and above a prediction, in log time at the three sizes, in 80 % of cases."""

    below: tuple[float, ...]
    above: tuple[float, ...]


class NcclWidths(NamedTuple):
    """The limits of one node and of several."""

    one_node: LogLimits
    several: LogLimits


@cache
def read_widths() -> NcclWidths:
    """Return the limits that are shipped."""
    found = tomllib.loads(WIDTHS_FILE.read_text(encoding="utf-8"))
    return NcclWidths(
        *(LogLimits(tuple(found[name]["below"]), tuple(found[name]["above"])) for name in NcclWidths._fields)
    )


@lru_cache(maxsize=64)
def _stretch(coverage: float) -> float:
    """Return how much wider an interval of a coverage is than one of 80 %."""
    if not 0 < coverage < 1:
        raise InputError(f"coverage = {coverage!r}; give a share between 0 and 1, as 0.8")
    return _quantile(coverage) / _quantile(COVERAGE)


def _quantile(coverage: float) -> float:
    """Return the number between whose minus and plus Student's t with two degrees lies with this probability."""
    return coverage * sqrt(2 / (1 - coverage**2))


def log_limits(comm: Communicator, sizes: Floats, *, has_like: bool = True, coverage: float = 0.8) -> Floats:
    """Return how far the ends of the interval of log time are below and above the prediction; [2, sizes].

    It holds a share ``coverage`` of measurements. Raise InputError for a coverage that is no share.
    """
    limits = read_widths().one_node if comm.nodes == 1 else read_widths().several
    base = np.array([np.interp(np.log(sizes), [log(size) for size in SIZES], side) for side in limits])
    result: Floats = base * widening(comm, has_like=has_like) * _stretch(coverage)
    return result


def widening(comm: Communicator, *, has_like: bool) -> float:
    """Return how many times as wide an interval is for what a description leaves open."""
    wider = (1.0 if has_like else UNCHECKED) * (GUESSED if comm.nic_is_guessed else 1.0)
    return wider * (DEGRADED if comm.degraded else 1.0)


COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", *PAIRWISE)
DEFAULTS = NcclSettings()


@dataclass(frozen=True)
class NcclCandidate:
    """An algorithm with a protocol: its time, the time that NCCL's tuner reckons with, and why it is not taken."""

    algorithm: str
    protocol: str
    seconds: float | None  # None where NCCL cannot use it
    tuner_seconds: float | None
    allowed: bool
    reason: str  # why it is not allowed, or not chosen


@dataclass(frozen=True)
class NcclPrediction:
    """A collective of one size: seconds with an 80 % interval, and what NCCL chose."""

    seconds: float
    low: float
    high: float
    algorithm: str  # "pairs" for collectives made of messages between pairs, "mpi" on processors
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
    """Return the seconds of a collective at sizes in bytes (nccl-tests' "size"). Raise InputError."""
    nbytes = _check_call(collective, sizes)
    values = parameters or read_parameters()
    return _seconds(make_communicator(system, settings), system.cluster, collective, nbytes, values)


def predict_among_others(
    part: System,
    whole: System,
    groups: tuple[tuple[int, ...], ...],
    collective: str,
    sizes: ArrayLike,
    *,
    settings: NcclSettings = DEFAULTS,
) -> Floats:
    """Return the seconds of a collective that ``groups`` of a host's GPUs, by their numbers, have at once.

    ``part`` is the system of a group by itself, ``whole`` all GPUs of its hosts. Raises InputError.
    """
    nbytes = _check_call(collective, sizes)
    comm = among_others(make_communicator(part, settings), whole, settings, groups)
    return _seconds(comm, part.cluster, collective, nbytes, read_parameters())


def _seconds(comm: Communicator, cluster: str | None, collective: str, nbytes: Floats, values: Parameters) -> Floats:
    predict = mpi_microseconds if comm.generation == "cpu" else predict_microseconds
    return predict(comm, collective, nbytes, values) * host_factors(cluster, comm.nodes, nbytes, values) / 1e6


def interval_log_limits(
    system: System, sizes: ArrayLike, *, coverage: float = 0.8, settings: NcclSettings = DEFAULTS
) -> Floats:
    """Return how far the interval's ends are below and above in log time, [2, sizes].

    A share ``coverage`` of measurements should lie in it.
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
    """Return NCCL's choice for a collective of ``size_bytes`` on a system, and its time. Raise InputError."""
    sizes = _check_call(collective, [size_bytes])
    comm = make_communicator(system, settings)
    seconds = float(predict_seconds(system, collective, sizes, settings=settings)[0])
    below, above = np.exp(interval_log_limits(system, sizes, settings=settings))[:, 0].tolist()
    found = _list_candidates(comm, collective, sizes, read_parameters())
    chosen = next((one for one in found if one.reason == CHOSEN), None)
    algorithm, protocol = (
        (chosen.algorithm, chosen.protocol) if chosen else _without_choice(comm, collective, size_bytes)
    )
    return NcclPrediction(
        seconds=seconds,
        low=seconds / below,
        high=seconds * above,
        algorithm=algorithm,
        protocol=protocol,
        channels=int(used_channels(comm, algorithm, protocol, sizes)[0]) if chosen else 1,
        candidates=found,
        rings=rank_rings(comm),
        notes=(*_notes(system, comm), *notes_of_settings(comm, collective)),
    )


CHOSEN = "NCCL's tuner finds it fastest"
MEANINGS = {  # of keys of a description that are not stated: what is taken
    ("layout", "switch"): "taken as all GPUs behind one PCIe switch",
    ("layout", "switches"): "taken as GPUs behind several PCIe switches",
    ("layout", "socket"): "taken as all GPUs on ports of one CPU",
    ("layout", "two"): "taken as GPUs on two CPUs, without PCIe switches",
    ("procs", "single"): "taken as one process for all GPUs of a host",
    ("procs", "per_gpu"): "taken as a process for each GPU",
}
REACHES = {  # of P2P over PCIe that no key states and no variable sets
    "NVL": "taken as the driver of GeForce boards has it: through host memory",
    "PXB": "taken as NCCL's default: over PCIe switches, else through host memory",
    "PHB": "taken as NCCL's default: within a CPU, else through host memory",
    "SYS": "taken as NCCL's default: between all GPUs of a host",
}

LL_THRESHOLD = 16384  # of a message between two ranks: NCCL_P2P_LL_THRESHOLD in src/enqueue.cc of NVIDIA/nccl


def _without_choice(comm: Communicator, collective: str, nbytes: int) -> tuple[str, str]:
    """Return what stands in place of algorithm and protocol where the tuner has nothing to choose."""
    message = nbytes if collective == "send_recv" else nbytes / comm.ranks
    return ("mpi", "") if comm.generation == "cpu" else ("pairs", "ll" if message <= LL_THRESHOLD else "simple")


def _check_call(collective: str, sizes: ArrayLike) -> Floats:
    if collective not in COLLECTIVES:
        raise InputError(f"collective = {collective!r} is not known of NCCL; {suggest(collective, COLLECTIVES)}")
    nbytes = np.atleast_1d(np.asarray(sizes, np.float64))
    if not np.isfinite(nbytes).all() or (nbytes < 1).any():
        raise InputError(f"size = {nbytes.min():g} bytes; give at least 1")
    return nbytes


def _list_candidates(
    comm: Communicator, collective: str, sizes: Floats, values: Parameters
) -> tuple[NcclCandidate, ...]:
    """Return all candidates, those that NCCL may take first, by the tuner's time."""
    if comm.generation == "cpu" or collective in PAIRWISE:
        return ()
    found = candidates(comm, collective, sizes, values)
    ranked = sorted(found.tuner, key=lambda choice: (-float(found.weights[choice][0]), float(found.tuner[choice][0])))
    open_ = [
        NcclCandidate(
            *choice,
            float(found.times[choice][0]) / 1e6,
            float(found.tuner[choice][0]) / 1e6,
            True,
            CHOSEN if choice == ranked[0] else f"the tuner finds {ranked[0][0]} with {ranked[0][1]} faster",
        )
        for choice in ranked
    ]
    closed = [NcclCandidate(*c, None, None, False, reason) for c, reason in allowed(comm, collective).items() if reason]
    return (*open_, *closed)


def _notes(system: System, comm: Communicator) -> tuple[str, ...]:
    """Return what a reader should know of the prediction's grounds."""
    said = ("nccl",) if comm.settings.version else ()
    guesses = {"nccl": f"NCCL's version (nccl) is a guess: {'.'.join(map(str, system.version))}",
               "nic": f"the rate of a host's NICs (nic) is a guess: {system.nic:g} GB/s"}  # fmt: skip
    notes = [guesses[key] for key in system.guessed if key not in said]
    notes += [f"{key} is not stated: {MEANINGS[key, getattr(system, key)]}" for key in ("layout", "procs")
              if key in system.defaulted and _matters(key, comm)]  # fmt: skip
    notes += _notes_on_p2p(system, comm)
    if outside := outside_checked(system, comm.version):
        notes.append(f"no system with {'; nor '.join(outside)} was checked: the interval is wider")
    if system.degraded:
        notes.append("the source says that this system is slower than it should be")
    return tuple(notes)


def _notes_on_p2p(system: System, comm: Communicator) -> list[str]:
    """Return what is taken of P2P over PCIe, where neither the description nor a variable says it."""
    level = comm.settings.p2p_level
    if not _matters("p2p", comm):
        return []
    if level and system.p2p_refused and level_rank(level) > level_rank("NVL"):
        return [f"NCCL_P2P_LEVEL={level} changes nothing: no P2P over PCIe is offered (p2p_refused)"]
    if level and is_seen_without(system) and level_rank(comm.host.p2p) > level_rank("NVL"):
        what = f"p2p = false is what was seen, and NCCL_P2P_LEVEL={level} is taken to change it"
        return [f"{what}; where the driver offers no P2P, say p2p_refused = true"]
    is_stated = not {"p2p", "p2p_refused"} <= system.defaulted
    if is_stated or comm.settings.p2p_disable or level or system.p2p_level:
        return []
    notes = [f"p2p is not stated: {REACHES[comm.host.p2p]}"]
    if depends_on_cpu(system, comm.settings):
        version = ".".join(map(str, comm.version))
        notes.append(
            f"cpu is not stated: taken as Intel's; on AMD's, NCCL {version} has P2P between all GPUs of a host"
        )
    return notes


def notes_of_settings(comm: Communicator, collective: str) -> list[str]:
    """Return the settings that leave nothing for a collective here, where NCCL before 2.24 falls back to rings."""
    return [
        f"{setting} leaves nothing for {collective} here, and NCCL before 2.24 falls back to rings"
        for setting in unmet_settings(comm, collective)
    ]


def _matters(key: str, comm: Communicator) -> bool:
    if key == "procs":
        return comm.host.gpus > 1
    return comm.host.link in ("pcie", "bridge") and comm.host.gpus > 1
