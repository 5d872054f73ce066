"""Variables of NCCL's that were set: what they take away, by prediction."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from collectives.errors import InputError
from simcomm.diagnosis.evidence.causes import Cause
from simcomm.diagnosis.evidence.expectation import DiagnosedCase
from simcomm.diagnosis.evidence.facts import ChannelCount, TunerChoice, VariableSet
from simcomm.nccl.predict import predict_collective
from simcomm.nccl.settings import NcclSettings

WORTH_NAMING = 1.05  # gain of a setting
LARGE = 2**24  # bytes, from which on the choice decides the rate
CLEARLY_SLOWER = 1.3  # times as long
ON = ("1", "true", "yes")


def _on(value: str) -> bool:
    return value.lower() in ON


def _number(key: str) -> Callable[[str], Mapping[str, Any]]:
    return lambda value: {key: int(value)} if value.isdecimal() else {}


class Harm(NamedTuple):
    """What a variable may do: when it does, in the words of a description or of NCCL's settings."""

    name: str  # of the cause
    text: str
    applies: Callable[[str], bool] = _on
    settings: Callable[[str], Mapping[str, Any]] = lambda value: {}
    changes: Mapping[str, Any] = {}  # of the description, of what matters for several hosts only


SOCKETS: Mapping[str, Any] = {"net": "tcp", "gdr": False}
HARMS: dict[str, Harm] = {
    "NCCL_P2P_DISABLE": Harm(
        "p2p-disabled", "P2P between GPUs is switched off", settings=lambda value: {"p2p_disable": True}
    ),
    "NCCL_P2P_LEVEL": Harm(
        "p2p-disabled",
        "P2P is allowed over short paths only",
        lambda value: value in ("LOC", "0", "NVL", "1", "PIX", "PXB"),
        lambda value: {"p2p_level": value},
    ),
    "NCCL_SHM_DISABLE": Harm(
        "shm-disabled",
        "what P2P does not carry inside a host goes over the network, as host memory is switched off",
        settings=lambda value: {"shm_disable": True},
    ),
    "NCCL_IB_DISABLE": Harm(
        "sockets-for-ib",
        "InfiniBand and RoCE are switched off, so TCP sockets carry the traffic",
        changes=SOCKETS,
    ),
    "NCCL_NET": Harm(
        "sockets-for-ib", "TCP sockets are asked for", lambda value: value.lower() == "socket", changes=SOCKETS
    ),
    "NCCL_NET_GDR_LEVEL": Harm(
        "no-gpudirect",
        "GPUDirect RDMA is switched off, so bytes go through host memory",
        lambda value: value in ("LOC", "0"),
        changes={"gdr": False},
    ),
    "NCCL_ALGO": Harm(
        "algorithm-forced", "the algorithm is forced", lambda value: True, lambda value: {"algo": value.lower()}
    ),
    "NCCL_PROTO": Harm(
        "protocol-forced", "the protocol is forced", lambda value: True, lambda value: {"proto": value.lower()}
    ),
    "NCCL_BUFFSIZE": Harm("small-buffers", "buffers of a channel are small", str.isdecimal, _number("buffer_bytes")),
    "NCCL_NTHREADS": Harm("few-threads", "a channel has few threads", str.isdecimal, _number("threads")),
    "NCCL_NVLS_ENABLE": Harm(
        "nvls-disabled",
        "reduction in the NVSwitch is switched off",
        lambda value: value == "0",
        lambda value: {"nvls": False},
    ),
    **dict.fromkeys(
        ("NCCL_MAX_NCHANNELS", "NCCL_MAX_CTAS"),
        Harm("few-channels", "there may be few channels", str.isdecimal, _number("max_channels")),
    ),
}


def find_harmful_settings(case: DiagnosedCase) -> Iterator[Cause]:
    """Yield each variable that makes it slower by prediction, or by what it says where nothing can be predicted."""
    for name, setting in case.facts.settings().items():
        harm = HARMS.get(name)
        if harm is None or not harm.applies(setting.value) or (harm.changes and not has_several_hosts(case)):
            continue
        if name == "NCCL_P2P_LEVEL" and setting.value not in ("LOC", "0") and case.machine.missing:
            continue
        gain = _gain(case, harm, setting)
        if gain is not None and gain < WORTH_NAMING:
            continue
        yield Cause(
            harm.name,
            f"{name}={setting.value}: {harm.text}",
            setting.place,
            f"unset {name}, and measure again",
            0.9 if gain is not None else 0.55 if harm.name in WEAK else 0.8,
            gain,
        )


WEAK = ("algorithm-forced", "protocol-forced", "few-channels", "small-buffers", "few-threads", "shm-disabled")


def _gain(case: DiagnosedCase, harm: Harm, setting: VariableSet) -> float | None:
    try:
        given = harm.settings(setting.value)
        NcclSettings(**given)
    except InputError:
        return None
    return case.slowdown(harm.changes, **given)


def has_several_hosts(case: DiagnosedCase) -> bool:
    """Return whether it is about several hosts, as far as the files say."""
    nodes = case.machine.keys.get("nodes")
    return nodes is None or nodes.value > 1


def find_slow_choice(case: DiagnosedCase) -> Iterator[Cause]:
    """Yield that NCCL's tuner takes at a large size what our model finds slower than what it would take itself."""
    if case.machine.missing or {"NCCL_ALGO", "NCCL_PROTO"} & case.facts.settings().keys():
        return
    for one in case.facts.of(TunerChoice):
        if one.nbytes < LARGE:
            continue
        found = predict_collective(case.machine.system(), one.collective, one.nbytes)
        times = {(each.algorithm, each.protocol): each.seconds for each in found.candidates if each.seconds}
        taken, best = times.get((one.algorithm, one.protocol)), times.get((found.algorithm, found.protocol))
        if taken and best and taken > CLEARLY_SLOWER * best:
            yield Cause(
                "tuner-choice",
                f"at {one.nbytes / 2**20:.4g} MiB NCCL takes {one.algorithm} with {one.protocol}; "
                f"{found.algorithm} with {found.protocol} should be faster",
                one.place,
                f"measure with NCCL_ALGO={found.algorithm} NCCL_PROTO={found.protocol}; look at the topology that "
                f"it found",
                0.5,
                taken / best,
            )
            return


def find_few_channels(case: DiagnosedCase) -> Iterator[Cause]:
    """Yield that NCCL opened fewer channels than the links need, though no variable says so."""
    counts = [one for one in case.facts.of(ChannelCount) if one.channels and not one.nvls]
    is_guess = "nic_guess" in case.machine.keys  # channels go with the NICs
    if not counts or is_guess or {"NCCL_MAX_NCHANNELS", "NCCL_MAX_CTAS"} & case.facts.settings().keys():
        return
    fewest = min(counts, key=lambda one: one.channels)
    gain = case.slowdown(max_channels=fewest.channels)
    if gain is not None and gain > CLEARLY_SLOWER:
        yield Cause(
            "few-channels",
            f"NCCL opened {fewest.channels} channels, with which it cannot use its links",
            fewest.place,
            "look at what its search found (NCCL_DEBUG_SUBSYS=GRAPH, NCCL_TOPO_DUMP_FILE): a link or NIC is missing; "
            "measure with NCCL_MIN_NCHANNELS",
            0.5,
            gain,
        )


RULES = (find_harmful_settings, find_slow_choice, find_few_channels)
