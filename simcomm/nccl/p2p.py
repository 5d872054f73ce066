"""How far P2P over PCIe reaches between the GPUs of a host: by the driver, by what is set, and by NCCL's own default.

NCCL's default is ``ncclTopoCheckP2p`` in ``src/graph/paths.cc`` of NVIDIA/nccl (before 2.6 ``p2pCanConnect`` in
``src/transport/p2p.cc``). It depends on the version and on whose the processors are:

* before 2.6: within a CPU ("do not use P2P across root complexes by default");
* 2.6 to 2.22: everywhere (``SYS``), but not through Intel's processors. There within a CPU until 2.8, as a maintainer
  says in issue 428 of December 2020, and only behind PCIe switches (``PXB``) in 2.12; where between them that changed
  is not known, and taken as 2.9. Through ARM processors never;
* from 2.23: behind PCIe switches, and on AMD's processors everywhere if there are at most two GPUs. Pull request 1331
  asked for it; pytorch's pull request 142179 cites the reason: "significant performance degradation" with more GPUs.

RCCL took the last of these back (ROCm/rccl pull request 1670), so AMD's GPUs keep the rule before it.
"""

from typing import TYPE_CHECKING

from simcomm.nccl.settings import LEVELS, NcclSettings, level_rank

if TYPE_CHECKING:
    from simcomm.nccl.descriptions import System

WITHIN_CPU_UNTIL = (2, 6)
WITHIN_INTEL_UNTIL = (2, 9)
PXB_FROM = (2, 23)
PAIR = 2  # GPUs for which AMD's processors keep P2P from 2.23 on


def default_reach(cpu: str, version: tuple[int, int], gpus: int, *, is_rccl: bool = False) -> str:
    """Return the level up to which NCCL uses P2P over PCIe where nothing is set.

    >>> default_reach("amd", (2, 21), 8), default_reach("amd", (2, 23), 8), default_reach("amd", (2, 23), 2)
    ('SYS', 'PXB', 'SYS')
    >>> default_reach("intel", (2, 8), 8), default_reach("intel", (2, 21), 2)
    ('PHB', 'PXB')
    """
    if version < WITHIN_CPU_UNTIL:
        return "PHB"
    if cpu == "intel":
        return "PHB" if version < WITHIN_INTEL_UNTIL else "PXB"
    if cpu == "arm" or (version >= PXB_FROM and not is_rccl and (cpu != "amd" or gpus > PAIR)):
        return "PXB"
    return "SYS"


def pcie_reach(system: "System", settings: NcclSettings) -> str:
    """Return how far P2P over PCIe reaches between the GPUs of a host, as a level.

    NCCL asks the driver too: what that refuses, as on GeForce boards, no level brings back.
    """
    if settings.p2p_disable:
        return "LOC"
    level = settings.p2p_level or system.p2p_level
    if level is not None:
        reach = LEVELS[level_rank(level)]
        is_refused = system.p2p_refused or (settings.p2p_level is None and is_seen_without(system))
        return LEVELS[min(level_rank(reach), level_rank("NVL"))] if is_refused else reach
    if system.p2p_refused:
        return "NVL"
    if "p2p" not in system.defaulted:
        return "SYS" if system.p2p else "NVL"
    return default_reach(
        cpu_of(system), settings.parsed_version() or system.version, system.gpus, is_rccl=_is_rccl(system)
    )


def is_seen_without(system: "System") -> bool:
    """Return whether the description states that GPUs reach each other through host memory."""
    return "p2p" not in system.defaulted and not system.p2p


def cpu_of(system: "System") -> str:
    """Return whose the host's processors are; Intel's where that is not stated: P2P reaches least there."""
    return system.cpu or "intel"


def depends_on_cpu(system: "System", settings: NcclSettings) -> bool:
    """Return whether AMD's processors would let P2P reach farther than those that are taken."""
    if system.cpu is not None:
        return False
    version = settings.parsed_version() or system.version
    found = [default_reach(cpu, version, system.gpus, is_rccl=_is_rccl(system)) for cpu in ("amd", cpu_of(system))]
    is_default = settings.p2p_level is None and system.p2p_level is None and "p2p" in system.defaulted
    return is_default and not system.p2p_refused and not settings.p2p_disable and found[0] != found[1]


def _is_rccl(system: "System") -> bool:
    return system.gpu.generation == "cdna"
