"""NCCL's channels, NICs, sockets and P2P: closed forms, settings, defaults and notes."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from collectives.errors import InputError
from simcomm.nccl.channels import between_hop, between_rate, by_threshold
from simcomm.nccl.communicator import default_reach, make_communicator
from simcomm.nccl.descriptions import System, describe_preset, describe_system, read_systems
from simcomm.nccl.parameters import read_parameters
from simcomm.nccl.predict import COLLECTIVES, outside_checked, predict_collective, predict_seconds
from simcomm.nccl.settings import NcclSettings
from simcomm.nccl.timing import nic_share

VALUES = read_parameters()
A100 = {"nodes": 1, "gpus": 8, "gpu": "A100 SXM", "nccl": "2.21"}
H100_HOSTS = {"nodes": 2, "gpus": 8, "gpu": "H100 SXM", "net": "ib", "nic": 400, "nccl": "2.21"}
LARGE = [2.0**30]

# Times can fall by these shares as the size grows: a call opens whole channels, so the second one halves the load of
# the first, and the tuner's estimates are inexact where it changes its choice. The 72 GPUs of an NVLink domain open a
# channel every 288 KiB only, so their steps are larger.
FALL, FALL_OF_MANY_RANKS = 0.15, 0.20


def communicator(line, **settings):
    return make_communicator(describe_system("mine", line), NcclSettings(**settings))


def seconds(line, collective="all_reduce", sizes=LARGE, **settings):
    return predict_seconds(describe_system("mine", line), collective, sizes, settings=NcclSettings(**settings))


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_predicted_nccl_time_rarely_falls_with_size(collective):
    sizes = 2.0 ** np.arange(3, 33.01, 0.25)
    for slug, system in read_systems().items():
        if system.skip or (system.gpu.generation == "cpu" and collective != "all_reduce"):
            continue
        times = predict_seconds(system, collective, sizes)
        allowed = FALL if system.ranks <= 32 else FALL_OF_MANY_RANKS
        falls = 1 - times / np.maximum.accumulate(times)
        assert falls.max() <= allowed, (slug, sizes[falls.argmax()], falls.max())


@pytest.mark.parametrize("line", [A100, H100_HOSTS, {"nodes": 1, "gpus": 8, "gpu": "H100 SXM", "nccl": "2.26"}])
@pytest.mark.parametrize("collective", ["all_reduce", "all_gather"])
def test_fewer_channels_or_threads_take_longer(line, collective):
    plain = seconds(line, collective)
    for count, least in ((1, 6.0), (4, 1.5)):
        assert seconds(line, collective, max_channels=count) > least * plain
    more = seconds(line, collective, max_channels=64, min_channels=64)
    assert plain <= more < 1.1 * plain  # links are full already, and there are more buffers to fill
    assert seconds(line, collective, threads=64, algo="ring") > 1.5 * seconds(line, collective, algo="ring")


def test_small_nccl_buffsize_limits_bandwidth_between_hosts():
    plain, small = (seconds(H100_HOSTS, "all_gather", buffer_bytes=size)[0] for size in (None, 2**16))
    comm = communicator(H100_HOSTS, buffer_bytes=2**16)
    window = 16 * 2**16 / (2 * between_hop(comm, "simple", VALUES) * 1000)  # GB/s of sixteen channels
    assert small > 5 * plain
    assert small == pytest.approx(2**30 * 15 / 16 / window / 1e9, rel=0.1)


def test_threshold_chooses_the_protocol_before_nccl_2_5():
    sizes = np.array([16384.0, 16385, 1_572_864, 1_572_865])
    old = communicator({"nodes": 1, "gpus": 8, "gpu": "V100 SXM2", "nccl": "2.2"})
    assert by_threshold(old, "ring", "ll", sizes).tolist() == [True, False, False, False]
    later = replace(old, version=(2, 4))  # 12 channels x 256 threads x 8 ranks x 64 bytes
    assert by_threshold(later, "ring", "ll", sizes).tolist() == [True, True, True, False]
    assert by_threshold(later, "ring", "simple", sizes).tolist() == [False, False, False, True]


@pytest.mark.parametrize(
    ("wrong", "accepted"),
    [
        ({"max_channels": 1000}, "NCCL_MAX_NCHANNELS must be an integer from 1 to 64, not 1000"),
        ({"buffer_bytes": 1}, "NCCL_BUFFSIZE must be an integer from 65536 to 1073741824, not 1"),
        ({"threads": 100}, "NCCL_NTHREADS must be one of 64, 128, 256, 512, not 100"),
        ({"p2p_level": "NODE"}, "must be LOC, NVL, PIX, PXB, PHB, SYS or a number, not 'NODE'"),
        ({"p2p_level": "pix"}, "not 'pix'; use capital letters"),
        ({"proto": "LL256"}, "unknown value 'll256'"),
    ],
)
def test_invalid_nccl_settings_are_rejected(wrong, accepted):
    with pytest.raises(InputError, match=accepted):
        NcclSettings(**wrong)


def test_nccl_over_tcp_is_limited_by_its_sockets():
    line = {"nodes": 2, "gpus": 1, "gpu": "A100 SXM", "net": "tcp", "nic": 12.5, "nccl": "2.21"}
    comm = communicator(line)
    assert between_rate(comm, VALUES) == pytest.approx(2 * VALUES["tcp.socket"])  # two channels, a socket each
    assert between_rate(communicator({**line, "nic": 1.25}), VALUES) < 1.25
    rdma = communicator({**line, "net": "ib"})
    assert between_hop(comm, "ll", VALUES) > VALUES["tcp.hop"] > 2 * between_hop(rdma, "ll", VALUES)


@pytest.mark.parametrize("net", ["tcp", "efa2", "efa3", "slingshot", "fastrak", "tcpx", "opa"])
def test_staging_through_host_memory_never_lowers_the_latency(net):
    line = {"nodes": 2, "gpus": 8, "gpu": "H100 SXM", "net": net, "nic": 50, "nccl": "2.21"}
    direct, staged = (communicator({**line, "gdr": gdr}) for gdr in (True, False))
    for protocol in ("ll", "simple"):
        assert between_hop(staged, protocol, VALUES) >= between_hop(direct, protocol, VALUES)


def loads_of_nics(collective, ports, nodes, gpus):
    """Return the maximum load of a NIC in one direction, as a share of the buffer, by counting every message."""
    n = nodes * gpus
    loads: dict[tuple[int, int, str], float] = {}
    for a, b in product(range(n), repeat=2):
        wanted = {"send_recv": b == (a + 1) % n, "gather": b == 0, "scatter": a == 0, "all_to_all": True}[collective]
        if a // gpus == b // gpus or not wanted:
            continue
        for rank, way in ((a, "out"), (b, "in")):
            local_gpu = rank % gpus
            nics = (
                [local_gpu * ports // gpus]
                if ports <= gpus
                else range(local_gpu * ports // gpus, (local_gpu + 1) * ports // gpus)
            )
            for nic in nics:
                key = (rank // gpus, nic, way)
                share = 1.0 if collective == "send_recv" else 1 / n
                loads[key] = loads.get(key, 0) + share / len(nics)
    return max(loads.values())


@pytest.mark.parametrize("collective", ["all_to_all", "send_recv", "gather", "scatter"])
@pytest.mark.parametrize(("ports", "nodes", "gpus"), [(1, 2, 8), (2, 3, 4), (4, 2, 8), (8, 2, 8), (8, 4, 4), (2, 2, 1)])
def test_load_of_the_busiest_nic_equals_its_counted_bytes(collective, ports, nodes, gpus):
    line = {"nodes": nodes, "gpus": gpus, "gpu": "A100 SXM", "net": "ib", "nic": 25.0 * ports, "nccl": "2.21"}
    comm = communicator(line)
    assert comm.network.ports == ports
    expected = loads_of_nics(collective, ports, nodes, gpus)
    assert nic_share(comm, collective) == pytest.approx(expected)
    large = 2.0**36
    nic = between_rate(comm, VALUES) / ports
    times = seconds(line, collective, [large])
    assert times[0] == pytest.approx(expected * large / nic / 1e9, rel=0.05)


L40S = {"nodes": 1, "gpus": 4, "gpu": "L40S", "layout": "two", "nccl": "2.21"}


def kinds(line: dict, **settings) -> set[str]:
    return {hop.kind for hop in make_communicator(describe_system("mine", line), NcclSettings(**settings)).hops}


def notes(system: System, **settings) -> str:
    return "; ".join(predict_collective(system, "all_reduce", 4096, settings=NcclSettings(**settings)).notes)


@pytest.mark.parametrize(
    ("cpu", "gpus", "reaches"),
    [  # of NCCL 2.5, 2.8, 2.12, 2.22, 2.23, 2.29: ncclTopoCheckP2p and p2pCanConnect in NVIDIA/nccl
        ("amd", 8, "PHB SYS SYS SYS PXB PXB"),
        ("amd", 2, "PHB SYS SYS SYS SYS SYS"),
        ("intel", 8, "PHB PHB PXB PXB PXB PXB"),
        ("intel", 2, "PHB PHB PXB PXB PXB PXB"),
        ("arm", 2, "PHB PXB PXB PXB PXB PXB"),
    ],
)
def test_p2p_default_depends_on_version_and_processor(cpu: str, gpus: int, reaches: str):
    versions = ((2, 5), (2, 8), (2, 12), (2, 22), (2, 23), (2, 29))
    assert " ".join(default_reach(cpu, version, gpus) for version in versions) == reaches


def test_amd_hosts_use_p2p_until_nccl_2_23():
    amd = {**L40S, "cpu": "amd"}
    assert kinds(L40S) == {"shm"} and kinds(amd) == {"p2p_far"}
    assert kinds({**amd, "nccl": "2.23"}) == kinds(amd, version="2.23.4") == {"shm"}
    assert kinds({**amd, "nccl": "2.23", "gpus": 2}) == {"p2p_far"}
    assert kinds({**amd, "gpu": "RTX 4090"}) == {"shm"}, "the driver of GeForce boards refuses"
    assert describe_preset("l40s-pcie", 1, 8).cpu == describe_preset("l40s-pcie-4x", 1, 4).cpu == "amd"


def test_p2p_level_overrides_observed_but_not_rejected_p2p():
    seen, refused = {**L40S, "p2p": False}, {**L40S, "p2p_refused": True}
    for line in (seen, refused):
        assert kinds({**line, "cpu": "amd"}) == kinds({**line, "p2p_level": "SYS"}) == {"shm"}
    assert kinds(seen, p2p_level="SYS") == {"p2p_far"} and kinds(refused, p2p_level="SYS") == {"shm"}
    assert kinds({**L40S, "p2p_level": "SYS"}) == {"p2p_far"}, "a level counts where p2p is not stated"
    with pytest.raises(InputError, match="p2p = true contradicts p2p_refused = true"):
        describe_system("mine", {**L40S, "p2p": True, "p2p_refused": True})


def test_notes_name_missing_keys_only_when_they_matter():
    system = describe_system("mine", L40S)
    assert "p2p is not stated, so Ringlab assumes that GPUs use P2P over PCIe switches and host" in notes(system)
    assert "cpu is not stated, so Ringlab assumes Intel; with an AMD CPU, NCCL 2.21" in notes(system)
    assert "cpu is not stated" not in notes(system, version="2.23")
    for settings in ({"p2p_level": "SYS"}, {"p2p_disable": True}):
        assert "p2p is" not in notes(system, **settings) and "cpu is" not in notes(system, **settings)
    refused = describe_preset("l40s-pcie", 1, 8)
    assert "p2p is" not in notes(refused) and "has no effect" in notes(refused, p2p_level="SYS")
    seen = describe_system("seen", {**L40S, "p2p": False})
    assert "set p2p_refused = true" in notes(seen, p2p_level="SYS") and "p2p_refused" not in notes(seen)
    hosts = {"gpu": "H100 SXM", "gpus": 8, "net": "ib", "nic": 400, "nic_guess": True}
    assert "(nic) is a guess" in notes(describe_system("two", {**hosts, "nodes": 2}))
    assert "(nic) is a guess" not in notes(describe_system("one", {**hosts, "nodes": 1}))
    assert "pcie is not stated, so Ringlab assumes PCIe 4.0" in notes(system)
    assert "gdr is not stated" in notes(describe_system("two", {**L40S, "nodes": 2, "net": "ib", "nic": 25.0}))


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ({"gpu": "A100 SXM", "nodes": 1, "gpus": 8, "nccl": "2.21"}, ()),
        ({"gpu": "T4", "nodes": 1, "gpus": 4, "nccl": "2.21"}, ()),
        ({"gpu": "V100 SXM3", "nodes": 1, "gpus": 16, "nccl": "2.21", "link": "nvswitch"}, ("volta",)),
        ({"gpu": "H100 SXM", "nodes": 1, "gpus": 8, "nccl": "2.99"}, ("NCCL 2.99 (2.0 to 2.31 were)",)),
        ({"machine": "coreweave_gb200", "nodes": 18, "gpus": 4, "nccl": "2.26"}, ()),
        ({"gpu": "H100 SXM", "nodes": 64, "gpus": 8, "net": "ib", "nic": 400, "nccl": "2.21"}, ("64 nodes with ib",)),
        ({"gpu": "A10", "nodes": 2, "gpus": 1, "net": "opa", "nic": 12.5, "nccl": "2.21"}, ("opa between",)),
        ({"gpu": "L40S", "nodes": 1, "gpus": 10, "nccl": "2.21"}, ("10 GPUs of a node with pcie (up to 8 were)",)),
    ],
)
def test_notes_name_properties_that_no_fitted_system_has(line: dict, wanted: tuple[str, ...]):
    system = describe_system("mine", line)
    texts = outside_checked(system)
    assert len(texts) == len(wanted) and all(words in text for words, text in zip(wanted, texts, strict=True)), texts
    assert ("was not validated" in notes(system)) is bool(wanted)
