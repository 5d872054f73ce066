"""What NCCL chooses from: the algorithms and protocols that it has for a collective, and what the settings leave.

Each candidate comes with what speaks against it, an empty text where nothing does. Which of the others NCCL believes to
be fastest is in ``tuner.py``.
"""

from collectives.errors import InputError
from simcomm.nccl.channels import OF_NVLS
from simcomm.nccl.communicator import Communicator

PAIRWISE = ("all_to_all", "gather", "scatter", "send_recv", "hypercube")  # made of sends and receives

Choice = tuple[str, str]  # algorithm, protocol
PROTOCOL = {"ll": 0, "ll128": 1, "simple": 2}
STRICT = (2, 24)  # the first version that reads NCCL_ALGO for one collective, and ends where nothing is left
PROTOCOLS_STAY = (2, 22)  # the first version whose rings to fall back to have only the protocols of NCCL_PROTO


def available(comm: Communicator, collective: str) -> dict[Choice, str]:
    """Return every algorithm and protocol with what speaks against it, an empty text where nothing does.

    What settings forbid is not looked at here; a protocol that they name is had also where it is off by default.
    """
    reasons: dict[Choice, str] = {}
    for algorithm in algorithms_of(comm, collective):
        for protocol in PROTOCOL if algorithm in ("ring", "tree") else ("simple",):
            reasons[algorithm, protocol] = _algorithm_reason(comm, collective, algorithm) or _protocol_reason(
                comm, collective, protocol
            )
    return reasons


def algorithms_of(comm: Communicator, collective: str) -> tuple[str, ...]:
    """Return the algorithms that NCCL has for a collective."""
    if collective == "all_reduce":
        return ("ring", "tree", "nvls", "nvls_tree", "collnet_chain")
    return ("ring", "pat", "nvls") if collective in ("all_gather", "reduce_scatter") else ("ring",)


def _algorithm_reason(comm: Communicator, collective: str, algorithm: str) -> str:
    """Return why an algorithm is not to be had, or an empty text."""
    if algorithm == "tree" and comm.version < (2, 5) and comm.nodes == 1:
        return "no trees inside a node before 2.5"
    if algorithm == "tree" and comm.version < (2, 4):
        return "no trees before 2.4"
    if algorithm in ("nvls", "nvls_tree"):
        return _nvls_reason(comm, collective, algorithm)
    if algorithm == "collnet_chain" and not (comm.sharp and comm.nodes > 1):
        return "no reduction in the network (SHARP)"
    if algorithm == "pat" and comm.version < (2, 23):
        return "PAT came with 2.23"
    if algorithm == "pat" and (comm.local > 1 or comm.nodes < 2):
        return "PAT is for one rank a node"
    return ""


def _nvls_reason(comm: Communicator, collective: str, algorithm: str) -> str:
    if comm.generation not in OF_NVLS or not any(hop.kind == "nvswitch" for hop in comm.hops):
        return "NVLS needs an NVSwitch, and Hopper or later"
    if comm.local <= 2:  # ncclNvlsInit in src/transport/nvls.cc of NVIDIA/nccl
        return "NVLS needs more than two GPUs in a node"
    if comm.settings.nvls is False:
        return "NCCL_NVLS_ENABLE=0"
    if comm.version < (2, 17):
        return "NVLS came with 2.17"
    if algorithm == "nvls_tree":
        return "" if comm.nodes > 1 and comm.version >= (2, 18) else "NVLSTree is for several nodes, from 2.18"
    return "" if comm.nodes == 1 or comm.sharp else "NVLS across nodes needs CollNet"


def _protocol_reason(comm: Communicator, collective: str, protocol: str) -> str:
    settings = comm.settings
    if settings.proto and not settings.proto.startswith("^") and protocol in settings.allowed_protocols(collective):
        return "LL128 came with 2.5" if protocol == "ll128" and comm.version < (2, 5) else ""
    if protocol != "simple" and comm.network is not None and comm.network.kind == "efa1":
        return "the plug-in for EFA allows Simple only before p5 (aws-ofi-nccl sets NCCL_PROTO=simple)"
    return _ll128_reason(comm) if protocol == "ll128" else ""


def _ll128_reason(comm: Communicator) -> str:
    """Return why LL128 is off by default: it relies on 128-byte stores that stay whole on their way."""
    if not comm.has_ll128:
        return "LL128 is on by default for Volta, A100, A30, Hopper and Blackwell only"
    if comm.version < (2, 5):
        return "LL128 came with 2.5"
    if comm.local > 1 and not comm.is_nvlink:
        return "LL128 needs NVLink inside a node"
    if comm.network is not None and (comm.network.kind == "tcp" or not comm.network.gdr):
        return "LL128 needs GPUDirect between nodes"
    return ""


def allowed(comm: Communicator, collective: str) -> dict[Choice, str]:
    """Return each candidate with what speaks against it: what NCCL lacks here, or what the settings forbid.

    Where the settings leave nothing, NCCL ends with an error from 2.24 on (``topoGetAlgoInfo`` in ``src/enqueue.cc`` of
    NVIDIA/nccl), and this raises InputError. Before, it fell back to rings: with all protocols up to 2.21, with those
    of NCCL_PROTO since (a maintainer in NVIDIA/nccl issue 1304).
    """
    found = available(comm, collective)
    reasons, forced = found, _forced(comm, collective)
    for part, name, words in forced:
        left = _restrict(reasons, part, name, words)
        if left is None and comm.version >= STRICT:
            raise InputError(_nothing_left(comm, collective, reasons))
        if left is None:
            rings = _restrict(found, 0, " ".join(name for _, name, _ in forced), ("ring",)) or found
            protocols = [one for one in forced if one[0] == 1 and comm.version >= PROTOCOLS_STAY]
            return _restrict(rings, *protocols[0]) or rings if protocols else rings
        reasons = left
    return reasons


def _restrict(reasons: dict[Choice, str], part: int, name: str, words: tuple[str, ...]) -> dict[Choice, str] | None:
    """Return the candidates where the setting ``name`` speaks against all but those words; None if it leaves none."""
    left = [choice for choice, reason in reasons.items() if not reason and choice[part] in words]
    if not left:
        return None
    return {choice: reason or ("" if choice in left else name) for choice, reason in reasons.items()}


def _forced(comm: Communicator, collective: str) -> list[tuple[int, str, tuple[str, ...]]]:
    """Return of NCCL_ALGO and NCCL_PROTO, where they are set: part of a choice, the setting, and what it allows."""
    settings = comm.settings
    forced = []
    if settings.algo is not None:
        forced.append((0, f"NCCL_ALGO={settings.algo}", settings.allowed_algorithms(collective)))
    if settings.proto is not None:
        forced.append((1, f"NCCL_PROTO={settings.proto}", settings.allowed_protocols(collective)))
    for _, name, _ in forced:
        if (":" in name or ";" in name) and comm.version < STRICT:
            version = ".".join(map(str, comm.version))
            raise InputError(f"{name}: NCCL reads a list for each collective from 2.24 on, and this is {version}")
    return forced


def _nothing_left(comm: Communicator, collective: str, reasons: dict[Choice, str]) -> str:
    """Return what NCCL ends with where the settings leave nothing, and why each candidate is out."""
    names = [name for _, name, _ in _forced(comm, collective)]
    wanted = {word for _, _, words in _forced(comm, collective)[:1] for word in words}
    why = dict.fromkeys(reason for choice, reason in reasons.items() if reason and wanted & set(choice))
    if "collnet_direct" in wanted and comm.sharp:
        why["collnet_direct is not modelled"] = None
    version = ".".join(map(str, comm.version))
    return f'NCCL {version} ends with "no algorithm/protocol available" for {collective}: ' + "; ".join(
        [f"{' '.join(names)} leaves none", *why]
    )


def unmet_settings(comm: Communicator, collective: str) -> list[str]:
    """Return the settings that leave nothing for a collective here, where NCCL before 2.24 falls back to rings."""
    if collective in PAIRWISE or comm.generation == "cpu":
        return []
    reasons = allowed(comm, collective)
    open_ = [choice for choice, reason in reasons.items() if not reason]
    return [name for part, name, words in _forced(comm, collective) if not any(one[part] in words for one in open_)]
