"""What lies inside a host: P2P that is not used, containers apart, PCIe slots, ACS and IOMMU, GPUs that are slowed."""

from collections import Counter as Tally
from collections.abc import Iterator
from statistics import median

from simcomm.diagnosis.evidence.causes import Cause
from simcomm.diagnosis.evidence.expectation import DiagnosedCase
from simcomm.diagnosis.evidence.facts import (
    CommRank,
    Counter,
    FilePlace,
    LinkState,
    LoggedHop,
    PairRates,
    PathMatrix,
    PcieSlot,
    TestTable,
)

NVLINKED = ("nvswitch", "mesh", "bridge")


def find_unused_p2p(case: DiagnosedCase) -> Iterator[Cause]:
    """Yield that GPUs which could write into each other's memory go through host memory."""
    shared = [one for one in case.facts.of(LoggedHop) if one.transport == "SHM"]
    refused = case.facts.complaint("p2p-refused")
    gain = case.slowdown(p2p_disable=True)
    if not shared or gain is None or gain < 1.1:
        return
    link = case.machine.system().link
    what = "NVLink joins the GPUs" if link in NVLINKED else "the GPUs hang behind PCIe switches"
    place = refused.place if refused else shared[0].place
    yield Cause(
        "p2p-not-used",
        f"{what}, but NCCL goes through host memory (SHM)",
        place,
        "look at NCCL_P2P_DISABLE and NCCL_P2P_LEVEL, at nvidia-smi topo -p2p r, at nvidia-fabricmanager, and whether "
        "each container sees all GPUs",
        0.85 if link in NVLINKED else 0.7,
        gain,
    )


def find_separated_containers(case: DiagnosedCase) -> Iterator[Cause]:
    """Yield that ranks of one host talk over the network or as if apart."""
    hosts = {one.rank: one.host for one in case.facts.of(CommRank) if one.host}
    hosts |= {device.rank: device.host for table in case.facts.of(TestTable) for device in table.devices}
    for hop in case.facts.of(LoggedHop):
        same = hosts.get(hop.source) is not None and hosts.get(hop.source) == hosts.get(hop.target)
        if hop.transport == "NET" and same and "NCCL_SHM_DISABLE" not in case.facts.settings():
            yield Cause(
                "separated-containers",
                f"ranks {hop.source} and {hop.target} of {hosts[hop.source]} talk over the network",
                hop.place,
                "let each container see all GPUs of the host (--gpus all --ipc host), and share /dev/shm",
                0.8,
                case.slowdown(p2p_disable=True),
            )
            return


def find_slots(case: DiagnosedCase) -> Iterator[Cause]:
    """Yield GPUs with fewer PCIe lanes than they could have, or than the others have."""
    slots = [one for one in case.facts.of(PcieSlot) if one.kind == "gpu" and one.lanes]
    most = max((one.lanes for one in slots), default=0)
    for slot in slots:
        can = max(slot.lanes_can, most)
        if slot.lanes < can:
            lanes = slot.lanes if slot.lanes in (1, 2, 4, 8) else None
            yield Cause(
                "pcie-degraded",
                f"the GPU at {slot.bus} has {slot.lanes} of {can} PCIe lanes",
                slot.place,
                "seat it again, look at the riser and the slot's width in the BIOS (bifurcation)",
                0.9,
                case.slowdown({"lanes": lanes}) if lanes else None,
            )
            return
    slowest = [one for one in slots if 0 < one.generation < one.generation_can and one.generation > 1]
    for slot in slowest[:1]:
        yield Cause(
            "pcie-degraded",
            f"the GPU at {slot.bus} runs at PCIe {slot.generation}.0 of {slot.generation_can}.0",
            slot.place,
            "look at it while it is busy; then at the riser and the BIOS",
            0.6,
            case.slowdown({"pcie": slot.generation}),
        )


def find_inactive_links(case: DiagnosedCase) -> Iterator[Cause]:
    """Yield the GPU that has fewer NVLinks up than others have, or than it has itself."""
    states = case.facts.of(LinkState)
    up = Tally(one.gpu for one in states if one.is_active)
    most = max(up.values(), default=0)
    expected = most if len({one.gpu for one in states}) > 1 else most + 1
    for one in states:
        if not one.is_active and up[one.gpu] < expected:
            there = sum(each.gpu == one.gpu for each in states)
            yield Cause(
                "nvlink-down",
                f"{there - up[one.gpu]} of the {there} NVLinks of GPU {one.gpu} are down",
                one.place,
                "look at dmesg for Xid 74, seat the GPU or its bridge again, and leave its host out until then",
                0.8,
            )
            return


def find_slow_pairs(case: DiagnosedCase) -> Iterator[Cause]:
    """Yield the GPU whose best rate to another is far below those among the others."""
    for one in case.facts.of(PairRates):
        count = len(one.rates)
        if count < 3:
            continue
        own = [max(one.rates[a][b] for b in range(count) if b != a) for a in range(count)]
        usual = median(own)
        worst = min(range(count), key=own.__getitem__)
        if own[worst] < 0.6 * usual:
            text = f"GPU {worst} moves {own[worst]:.3g} GB/s at most, the others {usual:.3g} among each other"
            yield Cause(
                "pcie-degraded",
                text,
                one.place,
                "look at the lanes of its slot (lspci -vv, LnkSta) while it is busy, at its riser, and whether it "
                "hangs on the chipset",
                0.85,
                usual / own[worst],
            )


def find_acs(case: DiagnosedCase) -> Iterator[Cause]:
    """Yield that PCIe's access control or an IOMMU sends P2P through the CPU."""
    complaint = case.facts.complaint("acs") or case.facts.complaint("iommu")
    if complaint is None:
        return
    what = "PCIe access control (ACS) is on" if complaint.key == "acs" else "the IOMMU translates"
    yield Cause(
        "acs-iommu",
        f"{what}: P2P and GPUDirect go through the CPU, which is slow or stands still",
        complaint.place,
        "switch off IOMMU (VT-d, AMD-Vi) or ACS in the BIOS, or boot with iommu=pt; setpci for each bridge",
        0.75,
    )


def find_slowed_gpus(case: DiagnosedCase) -> Iterator[Cause]:
    """Yield GPUs that their driver slows or that have memory errors; and advice of RCCL's that was not followed."""
    for one in case.facts.of(Counter):
        if one.key == "throttled":
            yield Cause(
                "gpu-throttled",
                f"a GPU is slowed: {one.device}",
                one.place,
                "look at temperature, fans and power limit (nvidia-smi -q -d PERFORMANCE)",
                0.7,
            )
        elif one.key == "ecc":
            yield Cause(
                "ecc",
                "a GPU has memory errors that cannot be corrected",
                one.place,
                "reset it; if they come again, have it replaced",
                0.7,
            )
    advice = {
        "fine-grain": "HSA_FORCE_FINE_GRAIN_PCIE=1",
        "iommu-advice": "iommu=pt on the kernel's command line",
        "numa-balancing": "sysctl kernel.numa_balancing=0",
    }
    for key, remedy in advice.items():
        complaint = case.facts.complaint(key)
        if complaint is not None:
            yield Cause(f"rccl-{key}", f"RCCL asks for {remedy}", complaint.place, f"set {remedy}", 0.5)


def find_far_p2p(case: DiagnosedCase) -> Iterator[Cause]:
    """Yield that P2P between CPUs was asked for, which host memory beats."""
    setting = case.facts.settings().get("NCCL_P2P_LEVEL")
    if setting is None or setting.value not in ("SYS", "PHB", "5", "4", "3"):
        return
    matrices = [one for one in case.facts.of(PathMatrix) if "SYS" in one.among_gpus()]
    layout = case.machine.keys.get("layout")
    far = matrices or (layout is not None and layout.value == "two") or _has_two_sockets(case)
    if far:
        yield Cause(
            "p2p-across-cpus",
            f"NCCL_P2P_LEVEL={setting.value}: P2P goes through the link between CPUs, which carries it more slowly "
            f"than host memory",
            setting.place,
            "unset NCCL_P2P_LEVEL",
            0.7,
            None,
        )


def _has_two_sockets(case: DiagnosedCase) -> bool:
    """Return whether more than four GPUs hang on PCIe alone, which one CPU's ports do not take."""
    gpus = case.machine.keys.get("gpus")
    return not case.machine.missing and gpus is not None and gpus.value > 4 and case.machine.system().link == "pcie"


def find_mixed_transports(case: DiagnosedCase) -> Iterator[Cause]:
    """Yield that some hops inside a host use P2P and some do not, where all GPUs are alike."""
    inside = [one for one in case.facts.of(LoggedHop) if one.transport in ("P2P", "SHM")]
    tally = Tally(one.transport for one in inside)
    slots = {one.lanes for one in case.facts.of(PcieSlot) if one.kind == "gpu" and one.lanes}
    if tally["P2P"] and tally["SHM"] and len(slots) > 1:
        place: FilePlace = next(one.place for one in inside if one.transport == "SHM")
        yield Cause(
            "mixed-slots",
            "GPUs with slots of several widths do not all reach each other by P2P",
            place,
            "use the GPUs of one kind of slot together (CUDA_VISIBLE_DEVICES)",
            0.5,
        )


RULES = (
    find_unused_p2p,
    find_separated_containers,
    find_slots,
    find_inactive_links,
    find_slow_pairs,
    find_acs,
    find_slowed_gpus,
    find_far_p2p,
    find_mixed_transports,
)
