"""NCCL's model: physical limits, choices of NCCL's tuner, settings, PCIe paths and intervals."""

from dataclasses import replace

import numpy as np
import pytest

import simcomm
from benchmarks.accuracy.tables import read_tables
from benchmarks.studies.nccl_fit import fit_parameters, observe_tables
from collectives.costs.bounds import bus_factor
from collectives.declaration import nccl
from collectives.errors import InputError
from simcomm.nccl.choice import available
from simcomm.nccl.clusters import nccl_cluster
from simcomm.nccl.communicator import make_communicator
from simcomm.nccl.descriptions import describe_preset, describe_system, read_systems
from simcomm.nccl.parameters import read_parameters
from simcomm.nccl.predict import interval_log_limits, predict_collective, predict_seconds
from simcomm.nccl.settings import LEVELS, NcclSettings
from simcomm.nccl.topology import GpuHost, mesh_rings, ring_hops
from simcomm.nccl.tuner import bandwidth, latency

NONE = NcclSettings()
SIZES = 2.0 ** np.arange(3, 34)
LINES = {
    "a100": {"nodes": 1, "gpus": 8, "gpu": "A100 SXM"},
    "h100": {"nodes": 1, "gpus": 8, "gpu": "H100 SXM"},
    "h100 of two hosts": {"nodes": 2, "gpus": 8, "gpu": "H100 SXM", "net": "ib", "nic": 400},
    "4090": {"nodes": 1, "gpus": 4, "gpu": "RTX 4090"},
    "mesh": {"nodes": 1, "gpus": 8, "gpu": "V100 SXM2"},
}
SYSTEMS = {name: describe_system(name, line) for name, line in LINES.items()}


@pytest.mark.parametrize("name", ["a100", "h100", "4090", "mesh", "h100 of two hosts"])
@pytest.mark.parametrize("collective", ["all_gather", "reduce_scatter", "all_to_all"])
def test_busbw_of_a_forced_ring_is_below_the_line_rate(name, collective):
    system = SYSTEMS[name]
    line = system.nic or system.nvlink or 2.0 * system.lanes
    times = predict_seconds(system, collective, SIZES, settings=NcclSettings(algo="ring"))
    assert (SIZES * bus_factor(collective, system.ranks) / times / 1e9 < line).all()


def test_first_gpus_of_cluster_match_a_smaller_system():
    two_hosts, host = (nccl_cluster(describe_preset("dgx-h100", nodes, 8)) for nodes in (2, 1))
    seconds = [
        simcomm.run(nccl("all_reduce"), cluster, 1 << 26).elapsed
        for cluster in (two_hosts.on_first(8), host, two_hosts)
    ]
    assert seconds[0] == pytest.approx(seconds[1], rel=1e-6) and seconds[1] < seconds[2]


@pytest.mark.parametrize(("collective", "size", "message"), [("all_reduse", 8, "all_reduse"), ("reduce", 0, "least 1")])
def test_nccl_model_rejects_unknown_collective_or_zero_size(collective, size, message):
    with pytest.raises(InputError, match=message):
        predict_seconds(SYSTEMS["a100"], collective, [size])


@pytest.mark.parametrize(
    ("name", "forced", "taken"),
    [("h100", {"algo": "ring"}, "ring"), ("h100", {"algo": "tree"}, "tree"), ("h100", {"algo": "nvls"}, "nvls"),
     ("4090", {"proto": "LL128", "version": "2.26"}, "ll128")],  # off by default, and named
)  # fmt: skip
def test_forced_algorithm_or_protocol_is_chosen(name, forced, taken):
    for nbytes in (1024, 2**20, 2**30):
        prediction = predict_collective(SYSTEMS[name], "all_reduce", nbytes, settings=NcclSettings(**forced))
        assert taken in (prediction.algorithm, prediction.protocol)
        assert all(candidate.reason for candidate in prediction.candidates)


@pytest.mark.parametrize(
    ("collective", "forced"),
    [
        ("all_reduce", {"algo": "nvls"}),
        ("all_reduce", {"algo": "^ring,tree,nvls,nvlstree,collnetchain,collnetdirect,pat"}),
        ("all_gather", {"algo": "tree"}),
        ("all_gather", {"algo": "ring;allgather:tree"}),
        ("all_reduce", {"algo": "ring", "proto": "^ll,ll128,simple"}),
    ],
)
def test_settings_without_candidates_fail_from_nccl_2_24(collective, forced):
    with pytest.raises(InputError, match=r'2\.24 ends with "no algorithm/protocol available" for all_'):
        predict_collective(SYSTEMS["a100"], collective, 1024, settings=NcclSettings(version="2.24", **forced))
    if ";" in forced["algo"]:
        return
    before = predict_collective(SYSTEMS["a100"], collective, 1024, settings=NcclSettings(version="2.21", **forced))
    assert any("excludes all candidates for all_" in note for note in before.notes)


@pytest.mark.parametrize(
    ("gpu", "gpus", "reason"),
    [("A100 SXM", 8, "an NVSwitch and Hopper or later"), ("H100 SXM", 2, "more than two GPUs per node")],
)
def test_description_that_forces_unsupported_nvls_is_rejected(gpu, gpus, reason):
    line = {"nodes": 1, "gpus": gpus, "gpu": gpu, "nccl": "2.27", "algo": "nvls"}
    with pytest.raises(InputError, match=f"NCCL_ALGO=nvls excludes all candidates; NVLS requires {reason}"):
        predict_seconds(describe_system("mine", line), "all_reduce", [1024])


def test_nccl_algo_of_one_collective_does_not_affect_others():
    each = NcclSettings(version="2.24", algo="AllReduce:Tree;broadcast:ring")
    prediction = predict_collective(SYSTEMS["a100"], "all_reduce", 2**30, settings=each)
    assert {candidate.algorithm for candidate in prediction.candidates if candidate.allowed} == {"tree"}
    plain = NcclSettings(version="2.24")
    assert predict_collective(SYSTEMS["a100"], "all_gather", 2**20, settings=each).seconds == (
        predict_collective(SYSTEMS["a100"], "all_gather", 2**20, settings=plain).seconds
    )
    with pytest.raises(InputError, match=r"requires NCCL 2\.24 or later, not 2\.21"):
        predict_seconds(SYSTEMS["a100"], "all_reduce", [8], settings=replace(each, version="2.21"))
    for wrong in ("allreduced:tree", "ring;tree", "allreduce:"):
        with pytest.raises(InputError, match="algo = "):
            NcclSettings(algo=wrong)


def test_tuner_times_equal_hand_computed_nccl_formulas():
    one_host = make_communicator(describe_system("a", {"nodes": 1, "gpus": 8, "gpu": "A100 SXM", "nccl": "2.21"}), NONE)
    # ring, Simple: 8.4 us, 14 steps of 3.4 us; 12 channels of 20 GB/s, 8 / 14 of it as algorithm bandwidth
    assert latency(one_host, "all_reduce", ("ring", "simple")) == pytest.approx(8.4 + 14 * 3.4)
    assert bandwidth(one_host, "all_reduce", ("ring", "simple")) == pytest.approx(240 * 8 / 14)
    # tree, LL: 6.8 us, a chain of seven GPUs up and down; before 2.13 another base
    assert latency(one_host, "all_reduce", ("tree", "ll")) == pytest.approx(6.8 + 14 * 0.6)
    older = replace(one_host, version=(2, 9))
    assert latency(older, "all_reduce", ("tree", "ll")) == pytest.approx(4.4 + 14 * 0.52)
    # NVLS on Hopper: nothing before 2.17, 23 us until 2.22, then 25
    hopper = make_communicator(describe_system("h", {"nodes": 1, "gpus": 8, "gpu": "H100 SXM", "nccl": "2.21"}), NONE)
    assert latency(hopper, "all_reduce", ("nvls", "simple")) == 23
    assert latency(replace(hopper, version=(2, 26)), "all_reduce", ("nvls", "simple")) == 25
    assert "2.17" in available(replace(hopper, version=(2, 16)), "all_reduce")["nvls", "simple"]


def test_tuner_matches_times_and_switch_points_in_nccl_logs():
    line = {"nodes": 3, "gpus": 8, "gpu": "H100 SXM", "net": "ib", "nic": 400, "nccl": "2.21"}
    prediction = predict_collective(describe_system("three", line), "all_reduce", 32768)
    assert (prediction.algorithm, prediction.protocol) == ("tree", "ll")
    assert prediction.candidates[0].tuner_seconds == pytest.approx(30.6e-6, rel=0.03)  # NVIDIA/nccl issue 1453
    eight = describe_system("eight", {"nodes": 1, "gpus": 8, "gpu": "H100 SXM", "nccl": "2.26"})
    choices = [predict_collective(eight, "all_reduce", size).algorithm for size in (2**20, 2**21)]
    assert choices == ["ring", "nvls"]  # nccl-tests issue 309


def test_efa_plugin_sets_latency_and_allows_only_simple():
    line = {"machine": "aws_p4d", "nodes": 2, "gpus": 8, "nccl": "2.18"}
    comm = make_communicator(describe_system("p4d", line), NONE)
    assert latency(comm, "all_reduce", ("ring", "simple")) == pytest.approx(8.4 + 28 * 3.4 + 2 * (14 + 2 * 75))
    assert {proto for (_, proto), reason in available(comm, "all_reduce").items() if not reason} == {"simple"}


def test_shm_disable_uses_the_nic_and_default_buffer_is_4_mib():
    usual, changed = (
        predict_seconds(SYSTEMS["a100"], "all_reduce", [2.0**30], settings=NcclSettings(buffer_bytes=size))[0]
        for size in (None, 4 * 2**20)
    )
    assert usual == changed
    with pytest.raises(InputError, match="use the network; set nic"):
        predict_seconds(SYSTEMS["4090"], "all_reduce", [1024], settings=NcclSettings(shm_disable=True))
    with_nic = describe_system("4090", {**LINES["4090"], "nic": 1.25, "net": "tcp"})
    over_nic, over_shm = (
        predict_seconds(with_nic, "all_reduce", [2.0**26], settings=NcclSettings(shm_disable=off))[0]
        for off in (True, False)
    )
    assert over_nic > 5 * over_shm


def test_gpus_behind_a_switch_without_p2p_share_its_uplink():
    apart = ring_hops(GpuHost(2, "pcie", pcie=4, layout="socket"))
    together = ring_hops(GpuHost(2, "pcie", pcie=4, layout="switch"))
    assert together[0].kind == apart[0].kind == "shm"
    assert together[0].rate == pytest.approx(apart[0].rate / 2)
    assert ring_hops(GpuHost(2, "pcie", pcie=4, layout="switch", p2p="PXB"))[0].kind == "p2p"
    assert ring_hops(GpuHost(2, "pcie", pcie=4, layout="socket", p2p="PXB"))[0].kind == "shm"


@pytest.mark.parametrize(
    ("layout", "reaches"),
    [  # at LOC, NVL, PIX, PXB, PHB, SYS: how many of the four hops of a ring are P2P, by NCCL's user guide
        ("switch", (0, 0, 4, 4, 4, 4)),
        ("switches", (0, 0, 2, 2, 2, 4)),
        ("socket", (0, 0, 0, 0, 4, 4)),
        ("two", (0, 0, 0, 0, 2, 4)),
    ],
)
def test_p2p_level_limits_the_distance_of_p2p_between_gpus(layout: str, reaches: tuple[int, ...]):
    line = {"nodes": 1, "gpus": 4, "gpu": "A100 PCIe", "layout": layout}
    for level, expected in zip(LEVELS, reaches, strict=True):
        hops = make_communicator(describe_system("mine", line), NcclSettings(p2p_level=level)).hops
        assert sum(hop.count for hop in hops if hop.kind.startswith("p2p")) == expected, level
    for number, level in (("3", "PHB"), ("99", "SYS")):
        old, new = (
            make_communicator(describe_system("mine", line), NcclSettings(p2p_level=e)) for e in (number, level)
        )
        assert old.hops == new.hops


def test_cube_mesh_rings_visit_all_gpus_without_a_shared_link():
    rings = mesh_rings(8)
    used = [tuple(sorted(pair)) for ring in rings for pair in zip(ring, (*ring[1:], ring[0]), strict=True)]
    assert len(rings) == 3 and all(sorted(ring) == list(range(8)) for ring in rings)
    assert len(used) == 24  # 24 NVLinks, each used once in each direction
    assert max(used.count(pair) for pair in used) <= 2


def test_nccl_interval_widens_with_coverage_or_a_guessed_nic():
    sizes = np.array([2.0**13])
    half, most = (interval_log_limits(SYSTEMS["a100"], sizes, coverage=share) for share in (0.5, 0.9))
    usual = interval_log_limits(SYSTEMS["a100"], sizes)
    assert (half < usual).all() and (usual < most).all()
    guessed = describe_system("g", {**LINES["h100 of two hosts"], "nic_guess": True})
    assert (interval_log_limits(guessed, sizes) > interval_log_limits(SYSTEMS["h100 of two hosts"], sizes)).all()


def test_refitting_reproduces_the_shipped_parameters():
    systems = read_systems()
    observed = observe_tables(systems, read_tables(systems))
    frozen = read_parameters()
    again = fit_parameters(observed, frozen).parameters
    assert max(abs(np.log(again[name] / frozen[name])) for name in frozen) < 0.05


@pytest.mark.parametrize(("gpu", "has"), [("A100 SXM", True), ("RTX 3090", False), ("RTX 4090", False)])
def test_ll128_default_depends_on_compute_capability(gpu: str, has: bool):
    line = {"nodes": 1, "gpus": 2, "gpu": gpu, "link": "bridge", "nvlink": 50.0}
    reasons = available(make_communicator(describe_system("mine", line), NONE), "all_reduce")
    assert ("by default" not in reasons["ring", "ll128"]) is has
