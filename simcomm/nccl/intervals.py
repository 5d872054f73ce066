"""Intervals: how far a prediction may be off, by what is known of the system.

The logarithm of measured / predicted is taken as Student's t with two degrees of freedom, whose tails are far heavier
than a normal distribution's. Its width is by what a description tells: one node or several, whether it lies outside
what was checked, whether the NICs' rate was guessed. The widths are chosen on systems of authors that no fit has seen
(``benchmarks.studies.nccl_unseen``): those of authors that are left out of a fit, but not of the choice of the model's
structure, would say too little.
"""

import tomllib
from collections.abc import Sequence
from functools import cache, lru_cache
from math import log, sqrt
from pathlib import Path
from typing import NamedTuple

import numpy as np

from collectives.errors import InputError
from simcomm.nccl.communicator import Communicator
from simcomm.nccl.descriptions import System, put_aside, read_systems
from simcomm.nccl.parameters import Floats

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
