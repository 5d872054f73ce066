"""Links that traffic of a training step shares: max-min shares on hosts, what they add to a step, how it is said."""

from itertools import product
from pathlib import Path

import pytest

import ringlab
from collectives.errors import InputError
from collectives.training.parallelism import CONTENTION
from planner.mesh.calls import LOADING, Group, StepLinks, Traffic, delay_of
from planner.mesh.interconnect import NcclInterconnect
from ringlab.commands.predicting.devices_answer import DevicesRow
from simcomm.nccl.descriptions import System, describe_preset, describe_system
from simcomm.nccl.host_links import HostLinks, TrafficFlows
from simcomm.nccl.settings import NcclSettings
from simcomm.nccl.topology import GpuHost, ring_hops
from simcomm.timeline import Program, run_sharing, run_tasks

SLOT = 24.0  # GB/s that software gets of PCIe 4.0 x16
ONE_SWITCH = ((0, 1, 2, 3), (4, 5, 6, 7))
JOB = "training={model='resnet50', batch_size=64, precision='fp16', compute={rate=9000.0}}"
SENTENCES = "training={model='bert-base-384', batch_size=8, precision='fp16', compute={rate=60.0}}"


def links_of(system: System, *contention: str) -> StepLinks:
    return StepLinks(system, NcclSettings(), frozenset(contention or CONTENTION))


@pytest.fixture(scope="module")
def eight() -> HostLinks:
    """Eight boards without peer-to-peer access, four behind each of two PCIe switches."""
    return HostLinks(describe_preset("rtx4090-pcie", 1, 8), NcclSettings())


@pytest.fixture
def scenario(tmp_path: Path) -> str:
    file = tmp_path / "boards.toml"
    file.write_text('title = "boards"\n[cluster]\npreset = "rtx4090-pcie"\ntransport = "nccl"\n[training]\n')
    return str(file)


def row(scenario: str, *overrides: str, devices: int = 8) -> DevicesRow:
    return ringlab.predict_devices(scenario, [devices], *overrides).cases[0].rows[0]


def test_gpus_behind_a_switch_load_with_a_share_of_its_uplink(eight: HostLinks) -> None:
    assert eight.rate(eight.loading()) == pytest.approx(SLOT / 4)
    ports = HostLinks(describe_preset("rtx4090-pcie-4x", 1, 4), NcclSettings())
    assert ports.rate(ports.loading()) == pytest.approx(SLOT)
    two = HostLinks(describe_preset("rtx4090-pcie", 1, 2), NcclSettings())  # one behind each switch
    assert two.rate(two.loading()) == pytest.approx(SLOT)
    described = {"nodes": 1, "gpus": 4, "gpu": "RTX 4090", "layout": "switch"}
    same = HostLinks(describe_system("mine", described), NcclSettings())
    assert same.rate(same.loading()) == pytest.approx(SLOT / 4)


def test_all_ranks_through_host_memory_share_the_uplinks(eight: HostLinks) -> None:
    ring = eight.rings("all_reduce", (tuple(range(8)),))
    assert eight.rate(ring) == pytest.approx(SLOT / 4)
    assert str(eight.shared_within(ring)) == "PCIe switch 0: 4 messages of all_reduce share 24 GB/s"
    pair = eight.rings("all_reduce", ((0, 4),))
    assert eight.rate(pair) == pytest.approx(SLOT) and eight.shared_within(pair) is None


def test_paces_are_max_min_shares(eight: HostLinks) -> None:
    ring, loading = eight.rings("all_reduce", (tuple(range(8)),)), eight.loading()
    assert eight.paces([ring]) == eight.paces([loading]) == [1.0]
    assert eight.paces([ring, loading]) == pytest.approx([0.5, 0.5])
    # a pair on one switch and the other's loading meet nowhere
    near = [eight.rings("all_reduce", (pair,)) for pair in ((0, 1), (4, 5))]
    assert eight.paces(near) == [1.0, 1.0] and eight.shared_between(near) == []
    # traffic that needs less than its share leaves the rest
    slow = TrafficFlows("slow", tuple(route for route in loading.routes[:1]))
    assert eight.paces([loading, slow])[0] == pytest.approx(4 / 5)


@pytest.mark.parametrize("machine", ["rtx4090-pcie", "dgx-1-v100", "dgx-a100", "dgx-h100", "l40s-pcie"])
def test_shared_rates_fill_no_link_beyond_its_capacity(machine: str) -> None:
    links = HostLinks(describe_preset(machine, 1, 8), NcclSettings())
    groups = [Group(size, stride).on_host(8) for size, stride in ((2, 1), (2, 4), (4, 1), (4, 2), (8, 1))]
    traffic = [links.loading(), *(links.rings(str(number), each) for number, each in enumerate(groups))]
    for pair in product(traffic, traffic):
        paces = links.paces(pair)
        assert all(0 < pace <= 1 for pace in paces)
        used: dict[tuple[str, str], float] = {}
        for one, pace in zip(pair, paces, strict=True):
            for route in one.routes:
                for link in route:
                    used[link] = used.get(link, 0.0) + pace * links.rate(one)
        assert all(load <= links.capacities[link] * (1 + 1e-9) for link, load in used.items())


def test_only_what_meets_on_a_host_is_shared() -> None:
    hopper = HostLinks(describe_preset("dgx-h100", 1, 8), NcclSettings())
    ring = hopper.rings("all_reduce", (tuple(range(8)),))
    assert hopper.paces([ring, hopper.loading()]) == [1.0, 1.0]  # NVLink, and a PCIe switch a GPU
    pairs, rows = hopper.rings("tensor", Group(2).on_host(8)), hopper.rings("data", Group(4, 2).on_host(8))
    assert hopper.paces([pairs, rows]) == pytest.approx([0.5, 0.5])
    assert str(hopper.shared_between([pairs, rows])[0]) == "NVLinks of GPU 0: tensor and data share 450 GB/s"
    two = HostLinks(describe_preset("dgx-h100", 2, 8), NcclSettings())
    across = two.rings("data", Group(8, 2).on_host(8), ranks=8)
    assert two.rate(across) == pytest.approx(400 / 2)  # two rings leave a host over all of its NICs


def test_a_rack_is_joined_by_its_nvlinks() -> None:
    rack = links_of(describe_preset("gb200-nvl72", 1, 72))
    assert rack.host.rate(rack.flows(Traffic("all_reduce", Group(72)))) == rack.host.host.nvlink
    assert rack.host.rate(rack.host.loading()) > 0
    traffic = frozenset([Traffic("tensor", Group(4)), Traffic("data", Group(18, 4))])
    assert [*rack.paces(traffic).values()] == pytest.approx([0.5, 0.5])


def test_groups_are_where_the_mesh_puts_them() -> None:
    assert Group(4).on_host(8) == ONE_SWITCH
    assert Group(2, 4).on_host(8) == ((0, 4), (1, 5), (2, 6), (3, 7))
    assert Group(4, 4).on_host(8) == ((0, 4), (1, 5), (2, 6), (3, 7))  # half of each is on another host
    assert Group(2, 8).on_host(8) == tuple((gpu,) for gpu in range(8))
    assert Group(16).on_host(8) == (tuple(range(8)),)
    host = GpuHost(8, "pcie", pcie=4, layout="switches", p2p="PXB")
    assert ring_hops(host, Group(4).on_host(8))[0].kind == "p2p"
    assert ring_hops(host, Group(2, 4).on_host(8))[0].kind == "shm"
    assert ring_hops(host, (tuple(range(8)),)) == ring_hops(host)


def test_groups_of_a_host_at_once_are_slower_than_one_and_as_quick_where_nothing_is_shared() -> None:
    def seconds(machine: str, group: Group, *contention: str) -> float:
        system = describe_preset(machine, 1, 8)
        fabric = NcclInterconnect(system, NcclSettings(), frozenset(contention or CONTENTION))
        return fabric.seconds("all_reduce", 100e6, group)

    assert seconds("rtx4090-pcie", Group(2)) > 2 * seconds("rtx4090-pcie", Group(2), "loading")
    assert seconds("dgx-h100", Group(2)) == seconds("dgx-h100", Group(2), "loading")
    whole = Group(8)
    assert seconds("rtx4090-pcie", whole) == seconds("rtx4090-pcie", whole, "loading")


def test_tasks_that_share_nothing_are_as_they_were_and_equal_ones_take_turns() -> None:
    program = Program()
    first = program.add("forward", (0, "compute"), 2.0)
    program.add("send", (0, "a"), 3.0, first, traffic="a")
    program.add("load", (0, "b"), 4.0, traffic="b")
    free = run_sharing(program.tasks, lambda going: dict.fromkeys(going, 1.0))
    assert free.intervals == run_tasks(program.tasks)
    assert free.together == {frozenset("ab"): 2.0}
    half = run_sharing(program.tasks, lambda going: dict.fromkeys(going, 0.5))
    begins_ends = [tuple(one) for one in half.intervals]
    # from 2 s on both have half: 2 s of loading are left and take 4, then the last second of sending
    assert begins_ends == [(0.0, 2.0), (2.0, 7.0), (0.0, 6.0)]


def test_loading_delays_what_it_meets_and_nothing_that_begins_later() -> None:
    links = links_of(describe_preset("rtx4090-pcie", 1, 8))
    for ready, delay in ((0.0, 1.0), (0.4, 0.6), (2.0, 0.0)):
        program = Program()
        backward = program.add("backward", (0, "compute"), ready)
        program.add("all_reduce", (0, "communication"), 3.0, backward, traffic=Traffic("all_reduce", Group(8)))
        found = delay_of(program, links, 1.0 * SLOT / 4 * 1e9)  # a second's bytes
        assert found.seconds == pytest.approx(delay, abs=1e-9)
        assert [str(one) for one in found.links] == (
            ["PCIe switch 0: all_reduce and loading share 24 GB/s"] if delay else []
        )
        assert delay_of(program, links_of(links.system, "groups", "streams"), 6e9) == (0.0, ())
    assert LOADING.group is None


def test_the_answer_names_the_link_and_what_it_costs(scenario: str) -> None:
    answer = ringlab.predict_devices(scenario, [8], JOB)
    found = answer.cases[0].rows[0]
    without = row(scenario, JOB, "training.contention=['groups', 'streams']")
    assert found.links_shared_between == ("PCIe switch 0: all_reduce and loading share 24 GB/s",)
    assert found.step_s == pytest.approx(sum(found.parts.values()))
    assert found.parts["contention"] > 0 == without.parts["contention"]
    more = found.parts["contention"] / (found.step_s - found.parts["contention"])
    assert f"{found.links_shared_between[0]}, which makes the step {more:.1%} longer." in answer.conclusions
    assert "PCIe switch 0: 4 messages of all_reduce share 24 GB/s." in answer.conclusions


def test_each_switch_turns_off_its_own(scenario: str) -> None:
    mesh = "training.parallelism={tensor = 2}"
    every, no_streams, no_groups = (
        row(scenario, SENTENCES, mesh, f"training.contention={given}")
        for given in ("['groups', 'streams', 'loading']", "['groups', 'loading']", "['streams', 'loading']")
    )
    assert every.parts["contention"] > 0 == no_streams.parts["contention"]
    assert {**every.parts, "contention": 0.0} == pytest.approx(no_streams.parts)
    assert no_groups.parts["tensor"] < every.parts["tensor"]
    assert row(scenario, JOB, "training.input_bytes=0") == row(
        scenario, JOB, "training.contention=['groups','streams']"
    )


@pytest.mark.parametrize("given", ["{}", "{tensor = 2}", "{form = 'fsdp'}", "{form = 'hsdp', shard = 4}"])
def test_where_nothing_is_shared_nothing_changes(given: str) -> None:
    job = SENTENCES, f"training.parallelism={given}"
    assert row("dgx-h100", *job) == row("dgx-h100", *job, "training.contention=['streams', 'loading']")
    if "tensor" not in given and "hsdp" not in given:  # of these the groups of a mesh share NVLinks
        assert row("dgx-h100", *job) == row("dgx-h100", *job, "training.contention=[]")


def test_steps_of_local_sgd_that_do_not_average_share_links_too(scenario: str) -> None:
    def contention(mesh: str, every: int, devices: int = 8) -> float:
        form = f"training.parallelism={{{mesh}, sync_every = {every}}}"
        return row(scenario, SENTENCES, form, "training.input_bytes=1_000_000", devices=devices).parts["contention"]

    whole = [contention("tensor = 4", every, devices=4) for every in (1, 1000)]  # one replica: nothing to average
    assert whole[0] == whole[1] > 0
    averaging, second, thousandth, never = (contention("tensor = 2", every) for every in (1, 2, 1000, 10**12))
    assert averaging > never > averaging / 100
    assert second == pytest.approx((averaging + never) / 2)
    assert thousandth == pytest.approx(never + (averaging - never) / 1000)


def test_hsdp_averages_beside_gathering(scenario: str) -> None:
    form = "training.parallelism={form = 'hsdp', shard = 4}"
    found = row(scenario, SENTENCES, form)
    assert found.parts["contention"] > 0
    assert "all_gather and all_reduce share" in found.links_shared_between[0]


def test_loading_that_takes_longer_than_the_step_decides(scenario: str) -> None:
    found = row(scenario, "training={model='resnet50', batch_size=64, precision='fp16', compute={rate=1e6}}",
                "training.input_bytes=60_000_000")  # fmt: skip
    assert found.bottleneck == "input"
    assert found.step_s == pytest.approx(64 * 60e6 / (SLOT / 4 * 1e9), rel=0.01)


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("training.contention=['pcie']", "unknown contention 'pcie'; there are groups, streams, loading"),
        ("training.input_bytes=-1", "training.input_bytes"),
    ],
)
def test_what_cannot_be_is_refused(scenario: str, override: str, said: str) -> None:
    with pytest.raises(InputError, match=said.replace("[", r"\[")):
        row(scenario, JOB, override)
