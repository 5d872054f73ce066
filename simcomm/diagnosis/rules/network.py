"""What lies between hosts: sockets in place of RDMA, no GPUDirect, few or far NICs, ports, loss."""

from collections import defaultdict
from collections.abc import Iterator

from simcomm.diagnosis.evidence.causes import Cause, stands_still
from simcomm.diagnosis.evidence.expectation import DiagnosedCase
from simcomm.diagnosis.evidence.facts import (
    ActiveMtu,
    Adapter,
    Complaint,
    Counter,
    Fact,
    FilePlace,
    Gid,
    LoggedHop,
    NetworkUsed,
    PathMatrix,
    PcieSlot,
    Port,
    SearchedGraph,
)
from simcomm.diagnosis.rules.settings import HARMS, has_several_hosts

WHY_SOCKETS = {  # by what NCCL complained of
    "no-ibverbs": ("libibverbs cannot be opened", "install libibverbs (rdma-core) in the container or image"),
    "ib-not-opened": (
        "the InfiniBand device cannot be opened",
        "give the container its devices: --device /dev/infiniband --ulimit memlock=-1 --cap-add IPC_LOCK",
    ),
    "efa-absent": (
        "libfabric finds no EFA",
        "start instances with EFA, and give the container /dev/infiniband/uverbs*",
    ),
    "no-ib-device": (
        "NCCL finds no InfiniBand device",
        "look at ibstat on the host and in the container; give the container /dev/infiniband, and its libraries",
    ),
}
LINK_LOCAL = ("fe80:", "0000:0000:0000:0000:0000:0000:0000:0000")  # the second: no address
APART = {"PIX": 0, "PXB": 0, "PXN": 0, "PHB": 1, "NODE": 2, "SYS": 3}


def find_sockets(case: DiagnosedCase) -> Iterator[Cause]:
    """Yield that TCP carries what RDMA should, and why as far as the log says."""
    used = [one for one in case.facts.of(NetworkUsed) if one.name.lower().startswith("socket")]
    hops = [one for one in case.facts.of(LoggedHop) if one.transport == "NET" and "Socket" in one.detail]
    complaint = case.facts.complaint("no-ibverbs", "ib-not-opened", "efa-absent", "no-ib-device")
    place = next((one.place for one in [*hops, *used]), complaint.place if complaint else None)
    other: list[Fact] = [one for one in case.facts.of(NetworkUsed) if not one.name.lower().startswith("socket")]
    other += [one for one in case.facts.of(LoggedHop) if one.transport == "NET" and "Socket" not in one.detail]
    if place is None or other or not has_several_hosts(case):
        return
    settings = case.facts.settings()
    asked = any(
        name in settings and HARMS[name].applies(settings[name].value) for name in ("NCCL_IB_DISABLE", "NCCL_NET")
    )
    net = case.machine.keys.get("net")
    has_rdma = net is not None and net.value != "tcp"
    why, remedy = WHY_SOCKETS.get(complaint.key, ("", "")) if complaint else ("", "")
    evidence = complaint.place if complaint and why else place
    gain = case.slowdown({"net": "tcp", "gdr": False}) if has_rdma else None
    text = "NCCL uses TCP sockets between hosts" + (f": {why}" if why else ", no RDMA")
    strength = 0.5 if asked else 0.9 if has_rdma or (complaint and complaint.key != "no-ib-device") else 0.65
    yield Cause(
        "sockets-for-ib",
        text,
        evidence,
        remedy
        or "if the hosts have InfiniBand, RoCE or EFA, look at why NCCL does not see it (ibstat, NCCL_DEBUG=INFO)",
        strength,
        gain,
    )


def find_unlike_nics(case: DiagnosedCase) -> Iterator[Cause]:
    """Yield that a host cannot open a NIC while others exchange over theirs."""
    complaint = case.facts.complaint("ib-not-opened")
    if complaint is not None and any(
        one.transport == "NET" and one.nic is not None for one in case.facts.of(LoggedHop)
    ):
        yield stands_still(
            "nics-differ",
            f"{complaint.host or 'a host'} cannot open one of its NICs, over which others may have channels to it",
            complaint.place,
            "give every container all NICs (--device /dev/infiniband), or name those that all have in NCCL_IB_HCA",
            0.85,
        )


def find_missing_gpudirect(case: DiagnosedCase) -> Iterator[Cause]:
    """Yield that NICs do not read the GPUs' memory, with the hosts on which they do not."""
    between = [one for one in case.facts.of(LoggedHop) if one.transport == "NET" and "Socket" not in one.detail]
    without = [one for one in between if not one.is_gdr]
    complaint = case.facts.complaint("gdr-off", "no-peermem")
    place = without[0].place if without else complaint.place if complaint and not between else None
    if place is None or not has_several_hosts(case):
        return
    bad, good = ({one.host for one in between if one.is_gdr is right and one.host} for right in (False, True))
    only = sorted(bad - good)
    where = f" on {', '.join(only[:4])}, though it is on {', '.join(sorted(good)[:4])}" if only and good else ""
    gain = case.slowdown({"gdr": False})
    if gain is not None and gain < 1.02 and not where:
        return
    yield Cause(
        "no-gpudirect",
        f"no GPUDirect RDMA{where}: bytes go through host memory",
        place,
        "load nvidia-peermem (before: nv_peer_mem) on every host, and look at `lsmod | grep peermem`; NICs should hang "
        "on the PCIe switch of their GPUs (nvidia-smi topo -m: PIX or PXB)",
        0.95 if where else 0.85,
        gain,
    )


def find_idle_nics(case: DiagnosedCase) -> Iterator[Cause]:
    """Yield that NCCL sends over fewer NICs than there are."""
    used: dict[str, list[int]] = defaultdict(list)
    places: dict[str, FilePlace] = {}
    for hop in case.facts.of(LoggedHop):
        if hop.transport == "NET" and hop.nic is not None and "Socket" not in hop.detail:
            used[hop.host].append(hop.nic)
            places.setdefault(hop.host, hop.place)
    listed: dict[str, set[str]] = defaultdict(set)
    for adapter in case.facts.of(Adapter):
        if adapter.kind in ("IB", "RoCE"):
            listed[adapter.host].add(adapter.name)
    gpus = case.machine.keys.get("gpus")
    for host, hops in used.items():
        there, nics = len(listed.get(host, ())), set(hops)
        if len(hops) >= there > len(nics) and gpus is not None and gpus.value > len(nics):
            yield _few_nics(
                case, len(nics), there, places[host], "NCCL_CROSS_NIC, and the topology (NCCL_TOPO_DUMP_FILE)"
            )
            return
    yield from _few_by_setting(case)


def _few_by_setting(case: DiagnosedCase) -> Iterator[Cause]:
    """Yield that NCCL_IB_HCA names fewer NICs than the host has."""
    setting = case.facts.settings().get("NCCL_IB_HCA")
    if setting is None or setting.value.startswith("^") or not has_several_hosts(case):
        return
    named = len([one for one in setting.value.lstrip("=").split(",") if one])
    nics = max((len(one.nics) for one in case.facts.of(PathMatrix)), default=0)
    ports = len([one for one in case.facts.of(Port) if one.is_up and not one.is_ethernet])
    gpus = case.machine.keys.get("gpus")
    is_prefix = not any(digit.isdecimal() for digit in setting.value.replace("mlx5", ""))
    if max(nics, ports) > named and not is_prefix and (gpus is None or gpus.value > named):
        yield _few_nics(case, named, max(nics, ports), setting.place, "NCCL_IB_HCA: name all NICs, or unset it")


def _few_nics(case: DiagnosedCase, used: int, there: int, place: FilePlace, what: str) -> Cause:
    nic = case.machine.keys.get("nic")
    gain = case.slowdown({"nic": nic.value * used / there}) if nic is not None else None
    text = f"{used} of {there} NICs of a host {'is' if used == 1 else 'are'} used"
    return Cause("few-nics", text, place, f"look at {what}", 0.85, gain)


def find_unlike_plugins(case: DiagnosedCase) -> Iterator[Cause]:
    """Yield that some hosts have NCCL's network plugin and others have not."""
    found = [one for one in case.facts.of(Complaint) if one.key == "plugin-there"]
    missing = [one for one in case.facts.of(Complaint) if one.key == "plugin-absent"]
    without = next((one for one in missing if one.host not in {each.host for each in found}), None)
    if found and without is not None:
        yield stands_still(
            "plugin-differs",
            f"{without.host or 'a host'} has no network plugin of NCCL's, {found[0].host or 'another'} has one: they "
            "do not understand each other",
            without.place,
            "the same plugin and LD_LIBRARY_PATH on all hosts, or NCCL_NET_PLUGIN=none on all",
            0.9,
        )


def find_address(case: DiagnosedCase) -> Iterator[Cause]:
    """Yield that NCCL was told an address of its NICs that is not routed, and NICs that send unlike much at once."""
    asked = case.facts.settings().get("NCCL_IB_GID_INDEX")
    for gid in case.facts.of(Gid):
        if asked is not None and asked.value == str(gid.index) and gid.address.startswith(LINK_LOCAL):
            yield stands_still(
                "gid-index",
                f"NCCL_IB_GID_INDEX={gid.index} is the link-local address of {gid.nic}, which leads to no other subnet",
                gid.place,
                "the index of the RoCE v2 address that ends in the interface's IPv4 address (show_gids), often 3",
                0.93,
            )
            return
    mtus = case.facts.of(ActiveMtu)
    for one in mtus:
        most = max(mtus, key=lambda each: each.nbytes)
        if one.nbytes < most.nbytes:
            yield stands_still(
                "mtu-differs",
                f"{one.nic} has an MTU of {one.nbytes} B, {most.nic} ({most.place.file}) one of {most.nbytes}",
                one.place,
                "one MTU on all NICs and switch ports of the fabric",
                0.7,
            )
            return


def find_ports(case: DiagnosedCase) -> Iterator[Cause]:
    """Yield ports that are down, or slower than their kin."""
    ports = [one for one in case.facts.of(Port) if one.gbit]
    best = max((one.gbit for one in ports if one.is_up), default=0.0)
    kin = [one for one in ports if one.is_up and one.gbit == best and not one.is_ethernet]
    for port in ports:
        if not port.is_up and not port.is_ethernet and len(kin) > 1:  # of a NIC's two ports one is often left empty
            yield Cause(
                "port-down",
                f"{port.name} is down, {len(kin)} others are up at {best:g} Gbit/s",
                port.place,
                "look at its cable, transceiver and switch port, and at the subnet manager",
                0.5,
                case.slowdown({"nic": best / 8 * len(kin) / (len(kin) + 1)}),
            )
        if port.is_up and port.gbit < 0.6 * best and len(kin) > 1 and not port.is_ethernet:
            yield Cause(
                "port-slow",
                f"{port.name} runs at {port.gbit:g} Gbit/s, others at {best:g}",
                port.place,
                "look at its cable and at the switch's port",
                0.75,
                case.slowdown({"nic": best / 8 * 0.5}),
            )
    for slot in case.facts.of(PcieSlot):
        few_lanes = 0 < slot.lanes < slot.lanes_can
        if slot.kind == "nic" and (few_lanes or 0 < slot.generation < slot.generation_can):
            what = f"has {slot.lanes} of {slot.lanes_can} PCIe lanes"
            if not few_lanes:
                what = f"runs at PCIe {slot.generation}.0 of {slot.generation_can}.0"
            yield Cause(
                "nic-slot",
                f"the NIC at {slot.bus} {what}",
                slot.place,
                "put it into a slot of its width and generation, or seat it again",
                0.8 if few_lanes else 0.5,  # a slot of an older generation may do for its rate
                None,
            )


def find_far_nics(case: DiagnosedCase) -> Iterator[Cause]:
    """Yield GPUs that have no NIC near them, where the hosts are several."""
    if not has_several_hosts(case):
        return
    for matrix in case.facts.of(PathMatrix):
        if not matrix.nics:
            continue
        nearest = {
            gpu: min((APART.get(matrix.between(gpu, nic), 3) for nic in matrix.nics), default=3) for gpu in matrix.gpus
        }
        far = [gpu for gpu, distance in nearest.items() if distance >= 2]
        through_cpu = [gpu for gpu, distance in nearest.items() if distance == 1]
        if far or len(through_cpu) == len(nearest):
            named = ", ".join((far or through_cpu)[:8])
            how = "on another NUMA node or host bridge" if far else "behind the CPU's host bridge"
            yield Cause(
                "nic-far",
                f"the nearest NIC of {named} is {how}, so GPUDirect RDMA is not used or slow",
                matrix.place,
                "put NICs on the PCIe switches of the GPUs; or NCCL_IB_HCA with the near ones, ranks on GPUs near to "
                "them, and more NUMA nodes per socket in the BIOS on EPYC",
                0.6 if far else 0.45,
                case.slowdown({"gdr": False}),
            )
            return


def find_loss(case: DiagnosedCase) -> Iterator[Cause]:
    """Yield counters of lost, reordered or sent-again packets."""
    lost = [one for one in case.facts.of(Counter) if one.key == "lost"]
    if lost:
        most = max(lost, key=lambda one: one.value)
        yield Cause(
            "packet-loss",
            f"packets are lost or sent again: {most.value:g} {most.device}",
            most.place,
            "configure lossless RoCE on NICs and switches alike (PFC for the traffic's priority, ECN), or change the "
            "cable",
            0.93,
        )


def find_failed_search(case: DiagnosedCase) -> Iterator[Cause]:
    """Yield that NCCL's search for rings and trees failed, so that it takes one slow channel in plain order."""
    complaint = case.facts.complaint("no-path")
    failed = [
        one for one in case.facts.of(SearchedGraph) if one.channels == 1 and one.inside <= 0.2 and one.between <= 0.2
    ]
    place = failed[0].place if failed else complaint.place if complaint else None
    if place is not None:
        yield Cause(
            "graph-search-failed",
            "NCCL finds no path for its rings through the topology, and falls back to one channel",
            place,
            "look at the topology (NCCL_TOPO_DUMP_FILE) for a missing NIC, switch or NVLink; NCCL_CROSS_NIC, another "
            "version",
            0.85,
            case.slowdown(max_channels=1),
        )


RULES = (
    find_sockets,
    find_unlike_nics,
    find_missing_gpudirect,
    find_idle_nics,
    find_unlike_plugins,
    find_address,
    find_ports,
    find_far_nics,
    find_loss,
    find_failed_search,
)
