"""Determine which algorithms and protocols NCCL can use for a collective, and which of them the settings allow.

A candidate is an algorithm with a protocol. The result is a text per candidate: the reason why it is excluded, or an
empty text. ``tuner.py`` computes the times by which NCCL chooses among the remaining candidates.
"""

from collectives.errors import InputError
from simcomm.nccl.channels import OF_NVLS
from simcomm.nccl.communicator import Communicator

PAIRWISE = ("all_to_all", "gather", "scatter", "send_recv", "hypercube")  # consist of sends and receives

Choice = tuple[str, str]  # algorithm, protocol
PROTOCOL = {"ll": 0, "ll128": 1, "simple": 2}
STRICT = (2, 24)  # the first version with lists per collective, and with an error if no candidate remains
PROTOCOLS_STAY = (2, 22)  # the first version that applies NCCL_PROTO to the rings it falls back to


def available(comm: Communicator, collective: str) -> dict[Choice, str]:
    """Return every algorithm and protocol with the reason why NCCL excludes it, or "" if NCCL can use it.

    NCCL_ALGO and NCCL_PROTO exclude nothing here, but NCCL_PROTO can make a protocol available that is off by default.
    """
    if collective == "all_reduce":
        algorithms: tuple[str, ...] = ("ring", "tree", "nvls", "nvls_tree", "collnet_chain")
    else:
        algorithms = ("ring", "pat", "nvls") if collective in ("all_gather", "reduce_scatter") else ("ring",)
    return {
        (algorithm, protocol): _algorithm_reason(comm, collective, algorithm)
        or _protocol_reason(comm, collective, protocol)
        for algorithm in algorithms
        for protocol in (PROTOCOL if algorithm in ("ring", "tree") else ("simple",))
    }


def _algorithm_reason(comm: Communicator, collective: str, algorithm: str) -> str:
    if algorithm == "tree" and comm.version < (2, 5) and comm.nodes == 1:
        return "NCCL has no trees inside a node before 2.5"
    if algorithm == "tree" and comm.version < (2, 4):
        return "NCCL has no trees before 2.4"
    if algorithm in ("nvls", "nvls_tree"):
        return _nvls_reason(comm, collective, algorithm)
    if algorithm == "collnet_chain" and not (comm.sharp and comm.nodes > 1):
        return "the network has no SHARP, so it cannot reduce"
    if algorithm == "pat" and comm.version < (2, 23):
        return "PAT requires NCCL 2.23 or later"
    if algorithm == "pat" and (comm.local > 1 or comm.nodes < 2):
        return "PAT requires several nodes with one rank each"
    return ""


def _nvls_reason(comm: Communicator, collective: str, algorithm: str) -> str:
    if comm.generation not in OF_NVLS or not any(hop.kind == "nvswitch" for hop in comm.hops):
        return "NVLS requires an NVSwitch and Hopper or later"
    if comm.local <= 2:  # ncclNvlsInit in src/transport/nvls.cc of NVIDIA/nccl
        return "NVLS requires more than two GPUs per node"
    if comm.settings.nvls is False:
        return "NCCL_NVLS_ENABLE=0"
    if comm.version < (2, 17):
        return "NVLS requires NCCL 2.17 or later"
    if algorithm == "nvls_tree" and (comm.nodes == 1 or comm.version < (2, 18)):
        return "NVLSTree requires several nodes and NCCL 2.18 or later"
    return "NVLS across nodes requires CollNet" if algorithm == "nvls" and comm.nodes > 1 and not comm.sharp else ""


def _protocol_reason(comm: Communicator, collective: str, protocol: str) -> str:
    settings = comm.settings
    if settings.proto and not settings.proto.startswith("^") and protocol in settings.allowed_protocols(collective):
        return "LL128 requires NCCL 2.5 or later" if protocol == "ll128" and comm.version < (2, 5) else ""
    if protocol != "simple" and comm.network is not None and comm.network.kind == "efa1":
        return "the plug-in for EFA allows Simple only before p5 (aws-ofi-nccl sets NCCL_PROTO=simple)"
    return _ll128_reason(comm) if protocol == "ll128" else ""


def _ll128_reason(comm: Communicator) -> str:
    """Return why LL128, which requires atomic 128-byte stores, is off by default; an empty string if it is on."""
    if not comm.system.gpu.has_ll128:
        return "LL128 is on by default for Volta, A100, A30, Hopper and Blackwell only"
    if comm.version < (2, 5):
        return "LL128 requires NCCL 2.5 or later"
    if comm.local > 1 and not comm.is_nvlink:
        return "LL128 requires NVLink inside a node"
    if comm.network is not None and (comm.network.kind == "tcp" or not comm.network.gdr):
        return "LL128 requires GPUDirect between nodes"
    return ""


def allowed(comm: Communicator, collective: str) -> dict[Choice, str]:
    """Return each candidate with the reason why NCCL or the settings exclude it; "" if it can be chosen.

    If the settings leave no candidate, NCCL from 2.24 on ends with an error (``topoGetAlgoInfo`` in ``src/enqueue.cc``
    of NVIDIA/nccl), and this function raises InputError. Older versions fall back to rings: up to 2.21 with all
    protocols, from 2.22 on with those of NCCL_PROTO (a maintainer in NVIDIA/nccl issue 1304).
    """
    candidates = available(comm, collective)
    reasons, forced = candidates, _forced(comm, collective)
    for part, setting, words in forced:
        remaining = _restrict(reasons, part, setting, words)
        if remaining is None and comm.version >= STRICT:
            raise InputError(_nothing_left(comm, collective, reasons))
        if remaining is None:
            rings = _restrict(candidates, 0, " ".join(name for _, name, _ in forced), ("ring",)) or candidates
            protocols = [each for each in forced if each[0] == 1 and comm.version >= PROTOCOLS_STAY]
            return _restrict(rings, *protocols[0]) or rings if protocols else rings
        reasons = remaining
    return reasons


def _restrict(reasons: dict[Choice, str], part: int, name: str, words: tuple[str, ...]) -> dict[Choice, str] | None:
    """Exclude the candidates whose algorithm (``part`` 0) or protocol (``part`` 1) is not in ``words``.

    ``name`` is the reason to record for each of them. Return None if no candidate remains.
    """
    remaining = [choice for choice, reason in reasons.items() if not reason and choice[part] in words]
    if not remaining:
        return None
    return {choice: reason or ("" if choice in remaining else name) for choice, reason in reasons.items()}


def _forced(comm: Communicator, collective: str) -> list[tuple[int, str, tuple[str, ...]]]:
    """Return the restrictions by NCCL_ALGO and NCCL_PROTO, as arguments of ``_restrict``. Unset variables add none."""
    settings = comm.settings
    forced = []
    if settings.algo is not None:
        forced.append((0, f"NCCL_ALGO={settings.algo}", settings.allowed_algorithms(collective)))
    if settings.proto is not None:
        forced.append((1, f"NCCL_PROTO={settings.proto}", settings.allowed_protocols(collective)))
    for _, name, _ in forced:
        if (":" in name or ";" in name) and comm.version < STRICT:
            version = ".".join(map(str, comm.version))
            raise InputError(f"{name} sets values per collective, which requires NCCL 2.24 or later, not {version}")
    return forced


def _nothing_left(comm: Communicator, collective: str, reasons: dict[Choice, str]) -> str:
    names = [name for _, name, _ in _forced(comm, collective)]
    wanted = {word for _, _, words in _forced(comm, collective)[:1] for word in words}
    why = dict.fromkeys(reason for choice, reason in reasons.items() if reason and wanted & set(choice))
    if "collnet_direct" in wanted and comm.sharp:
        why["collnet_direct is not modeled"] = None
    version = ".".join(map(str, comm.version))
    return f'NCCL {version} ends with "no algorithm/protocol available" for {collective}: ' + "; ".join(
        [f"{' '.join(names)} excludes all candidates", *why]
    )


def unmet_settings(comm: Communicator, collective: str) -> list[str]:
    """Return each of NCCL_ALGO and NCCL_PROTO, with its value, that no usable candidate satisfies.

    NCCL before 2.24 ignores such a setting and falls back to rings.
    """
    if collective in PAIRWISE or comm.generation == "cpu":
        return []
    usable = [choice for choice, reason in allowed(comm, collective).items() if not reason]
    return [
        name for part, name, words in _forced(comm, collective) if not any(choice[part] in words for choice in usable)
    ]
