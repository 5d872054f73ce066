"""Steps on meshes of devices: closed forms of pipelines, volumes of ZeRO and tensor parallelism, and overlap."""

from dataclasses import dataclass, field

import numpy as np
import pytest

import simcomm
from benchmarks.studies.scaling_columns import cases_of, make_cases, step_times
from collectives.errors import InputError
from collectives.records.model_profile import Layer, ModelProfile, TransformerShape, find_model_profile
from collectives.training.gradients import Gradient
from collectives.training.parallelism import Parallelism
from planner.hosts import Group
from planner.mesh.calls import sent_bytes
from planner.mesh.compute import as_measured, at_rate
from planner.mesh.interconnect import NcclInterconnect, Served, SimulatedInterconnect
from planner.mesh.job import MeshDevice, TrainingJob
from planner.mesh.pipeline import StageTimes, pipeline_program
from planner.mesh.prediction import StepPrediction
from planner.mesh.step import StepModel
from planner.mesh.sync import DeviceWork, Unit, data_groups, sync_step
from planner.mesh.terms import read_parameters
from planner.pipeline import order_of
from planner.scaling.descriptions import read_series
from planner.scaling.gpu_rates import predict_rate
from simcomm.nccl.descriptions import describe_preset
from simcomm.timeline import overlap

SHAPE = TransformerShape(8, 64, 8, 16, 100, 8, 256)


@dataclass
class Counted:
    """Devices joined by links on which a byte takes ``byte_s`` seconds, and what was asked of them."""

    byte_s: float = 0.0
    kind: str = ""
    node: int = 8
    nic: float = 1e12
    links: None = None
    calls: list[tuple[str, float, Group]] = field(default_factory=list)

    def seconds(self, collective: str, nbytes: float, group: Group) -> float:
        self.calls.append((collective, nbytes, group))
        return 0.0 if group.size == 1 else self.byte_s * sent_bytes(collective, nbytes, group)

    def serve(self, nbytes: float, largest: float, group: Group) -> Served:
        return Served(2 * self.byte_s * nbytes * (group.size - 1), is_spread=False)


def alike(blocks: int = 8, shape: TransformerShape | None = SHAPE) -> ModelProfile:
    """A model of blocks that are alike."""
    layers = (Layer(f"l{n}.mlp.a", "Linear", f"l{n}", (1000,), 100, 200, 0, 0, 0, 34, 64) for n in range(blocks))
    return ModelProfile("alike", "4", 4, "test", tuple(layers), shape)


VGG = find_model_profile("vgg16")
FOUR_BLOCKS = ModelProfile(
    "four blocks", "4", 4, "test", tuple(
        Layer(f"l{n}.{part}", "Linear", f"l{n}", (5_000_000,), 100, 200, 0, 0, 0, 34, 64)
        for n in range(4) for part in "abcde"
    ), SHAPE,
)  # fmt: skip


def predict(fabric: Counted, parallelism: Parallelism, batch: int = 8, devices: int = 8) -> StepPrediction:
    """A step of the model of eight blocks, which computes for a second a sample."""
    return StepModel(TrainingJob(alike(), batch, parallelism), at_rate(alike(), 1.0), lambda _: fabric).predict(devices)


def bubble_share(devices: int, microbatches: int, virtual: int = 1) -> float:
    """The idle share of a step whose stages are alike and whose messages take no time."""
    return (devices - 1) / (virtual * microbatches + devices - 1)


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "interleaved"])
@pytest.mark.parametrize(("devices", "microbatches"), [(2, 2), (4, 8), (4, 16), (8, 8)])
def test_a_pipeline_waits_as_long_as_its_closed_strategy(schedule: str, devices: int, microbatches: int) -> None:
    virtual = 3 if schedule == "interleaved" else 1
    stages = [StageTimes(1.0, 2.0, 0.0)] * (devices * virtual)
    ends = [interval.end for interval in pipeline_program(schedule, stages, devices, microbatches).intervals()]
    assert max(ends) == 3 * (virtual * microbatches + devices - 1)
    assert 1 - 3 * virtual * microbatches / max(ends) == pytest.approx(bubble_share(devices, microbatches, virtual))


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "interleaved"])
def test_every_device_does_all_of_its_work_once(schedule: str) -> None:
    virtual = 2 if schedule == "interleaved" else 1
    for device in range(4):
        order = order_of(schedule, device, 4, 8, virtual)
        assert len({*order}) == len(order) == 2 * 8 * virtual
        for work in order:
            if work.is_backward:
                assert order.index(work._replace(is_backward=False)) < order.index(work)


def test_a_pipeline_in_a_step() -> None:
    fabric = Counted()
    for microbatches, schedule in ((4, "gpipe"), (8, "1f1b")):
        parallelism = Parallelism(data=2, pipeline=4, microbatches=microbatches, schedule=schedule)
        found = predict(fabric, parallelism)
        assert found.parts.compute == pytest.approx(8 / 4)
        assert found.parts.pipeline / found.parts.total == pytest.approx(bubble_share(4, microbatches))
    naive = predict(fabric, Parallelism(data=2, pipeline=4, schedule="naive"))
    assert naive.parts.total == pytest.approx(8.0)  # one device at a time: as long as one device alone
    assert naive.efficiency == pytest.approx(1 / 4)


def test_a_stage_has_the_collectives_of_its_own_layers() -> None:
    fabric = Counted(byte_s=1e-6)
    found = predict(fabric, Parallelism(data=1, tensor=2, pipeline=4, microbatches=8))
    once = 1e-6 * 2 * 1 / 2 * SHAPE.context * SHAPE.width * 4  # of a sample
    assert found.parts.tensor == pytest.approx(8 * 2 * 4 * once)  # microbatches, layers of a stage, all_reduces
    assert found.parts.compute == pytest.approx(8 / 4 / 2)


def test_messages_of_a_pipeline_are_waited_for() -> None:
    fabric = Counted(byte_s=1e-3)
    found = predict(fabric, Parallelism(data=1, pipeline=8, schedule="naive"), batch=1)
    assert found.parts.pipeline == pytest.approx(7 / 8 + 2 * 7 * 64 * 1e-3)
    assert {call[:2] for call in fabric.calls if call[0] == "send_recv"} == {("send_recv", 64.0)}


def test_zero_moves_what_its_paper_says() -> None:
    """Section 7: stages 1 and 2 as much as DDP, stage 3 one and a half times as much."""
    sent = {
        strategy: predict(Counted(), Parallelism(strategy=strategy)).sent_bytes
        for strategy in ("ddp", "zero1", "zero2", "zero3")
    }
    assert sent["ddp"] == pytest.approx(2 * 7 / 8 * 4 * 8000)
    assert sent["zero1"] == pytest.approx(sent["ddp"]) == pytest.approx(sent["zero2"])
    assert sent["zero3"] == pytest.approx(1.5 * sent["ddp"])
    assert predict(Counted(), Parallelism(strategy="fsdp")).sent_bytes == sent["zero3"]


def test_hsdp_gathers_within_a_node_and_averages_between() -> None:
    fabric = Counted()
    predict(fabric, Parallelism(strategy="hsdp", shard=4))
    assert {(name, group) for name, _, group in fabric.calls} == {
        ("all_gather", Group(4, 1)), ("reduce_scatter", Group(4, 1)), ("all_reduce", Group(2, 4)),
    }  # fmt: skip


def test_tensor_parallelism_has_four_all_reduces_a_layer() -> None:
    fabric = Counted(byte_s=1e-6)
    found = predict(fabric, Parallelism(data=2, tensor=4))
    once = 1e-6 * 2 * 3 / 4 * 8 * SHAPE.context * SHAPE.width * 4
    assert found.parts.tensor == pytest.approx(8 * 4 * once)
    assert found.parts.compute == pytest.approx(8 / 4)
    sequence = predict(fabric, Parallelism(data=2, tensor=4, sequence=True))
    assert sequence.parts.tensor == pytest.approx(found.parts.tensor)  # an all_gather and a reduce_scatter for each
    again = predict(fabric, Parallelism(data=2, tensor=4, recompute="full"))
    assert again.parts.tensor == pytest.approx(1.5 * found.parts.tensor)
    assert again.parts.compute == pytest.approx(4 / 3 * found.parts.compute, rel=0.01)


def test_experts_have_four_all_to_alls_a_layer() -> None:
    fabric = Counted(byte_s=1e-6)
    found = predict(fabric, Parallelism(expert=4, experts=8, top_k=2))
    once = 1e-6 * 3 / 4 * 8 * SHAPE.context * SHAPE.width * 4 * 2
    assert found.parts.expert == pytest.approx(8 * 4 * once)
    assert found.parts.tensor == 0


def test_a_token_computes_as_many_experts_as_it_visits() -> None:
    """The whole model of these tests is MLPs; the rate is of the dense model."""
    one, two = (predict(Counted(), Parallelism(experts=8, expert=8, top_k=visits)) for visits in (1, 2))
    assert (one.parts.compute, two.parts.compute) == (pytest.approx(8.0), pytest.approx(16.0))
    assert one.efficiency == two.efficiency == pytest.approx(1.0)
    assert two.memory[0].activations == 2 * one.memory[0].activations


@pytest.mark.parametrize("strategy", ["ddp", "zero1", "zero2", "zero3", "fsdp", "zero_redundancy"])
def test_experts_exchange_with_the_devices_that_have_the_same(strategy: str) -> None:
    """All is of experts here: eight devices that have one of eight each exchange nothing, of four each with one."""
    exchanged = {"all_reduce", "reduce_scatter", "all_gather", "broadcast"}
    for expert, group in ((8, None), (4, Group(2, 4))):
        fabric = Counted()
        found = predict(fabric, Parallelism(strategy=strategy, experts=8, expert=expert))
        assert {call.group for call in found.calls[0] if call.collective in exchanged} == ({group} if group else set())


def test_states_of_experts_are_divided_among_the_devices_that_have_the_same() -> None:
    """Two experts of each of eight MLPs on a device, and two devices that have the same."""
    strategy = {"experts": 8, "expert": 4}
    for name, divided in (("ddp", 1), ("fsdp", 2)):
        found = predict(Counted(), Parallelism(strategy=name, **strategy)).memory[0]
        assert found.parameters == 4 * 2 * 8000 / divided


def test_ddp_is_the_timeline_of_overlap() -> None:
    units = [Unit(1.0, 2.0, 4e6, 4e6)] * 3
    fabric, parallelism = Counted(byte_s=1e-7), Parallelism(data=2, bucket_mb=3)
    gradients = [Gradient(4_000_000, share) for share in (1 / 3, 2 / 3, 1.0)]
    found = sync_step(DeviceWork(units, gradients), parallelism, data_groups(fabric, parallelism), slowdown=0.5)
    times = overlap(6.0, [1 / 3, 2 / 3, 1.0], [0.4] * 3, 0.5)
    assert found.seconds == pytest.approx(3 + times.finished)
    assert found.exposed == pytest.approx(0.4)


def test_fsdp_prefetches_as_it_is_told() -> None:
    """Three units that compute 1 s forward and 2 backward; gathering one takes 1 s, scattering 1 s."""
    units = [Unit(1.0, 2.0, 2e6, 2e6)] * 3
    fabric = Counted(byte_s=1e-6)
    times = {}
    for prefetch in (0, 1):
        parallelism = Parallelism(strategy="fsdp", data=2, prefetch=prefetch)
        times[prefetch] = sync_step(DeviceWork(units, []), parallelism, data_groups(fabric, parallelism), slowdown=0.0)
    # without: gather and compute in turns, and the scatter before hides behind the next backward
    assert times[0].seconds == 3 * 2 + 3 * 3 + 1
    # with: only the first gathers of forward and of backward and the last scatter are waited for
    assert times[1].seconds == 1 + 3 * 1 + 1 + 3 * 2 + 1
    assert times[1].compute == 9


def test_data_parallel_sends_everything_and_hides_nothing() -> None:
    found = predict(Counted(byte_s=1e-6), Parallelism(strategy="data_parallel"))
    assert found.parts.sync == pytest.approx(2 * 4 * 8000 * 1e-6)
    assert found.parts.total == pytest.approx(8 + found.parts.sync)


def test_parts_add_up_and_intervals_hold_the_rate() -> None:
    fabric = Counted(byte_s=1e-5, kind="nvlink")
    for parallelism in (
        Parallelism(),
        Parallelism(strategy="fsdp"),
        Parallelism(tensor=2, pipeline=2),
        Parallelism(strategy="zero1"),
    ):
        found = predict(fabric, parallelism)
        assert found.rate == pytest.approx(8 * found.parallelism.data / found.parts.total)
        low, high = found.interval()
        assert low < found.rate < high
        wide = found.interval(0.9)
        assert wide[0] < low and high < wide[1]


def test_a_simulated_network_carries_groups() -> None:
    cluster = simcomm.star(8, "10 Gbit/s", "5 us")
    fabric = SimulatedInterconnect(cluster)
    whole = simcomm.run("all_reduce/ring", cluster, nbytes=1 << 20).elapsed
    assert fabric.seconds("all_reduce", 1 << 20, Group(8)) == whole
    assert fabric.seconds("send_recv", 1 << 20, Group(2, 4)) == pytest.approx(10e-6 + (1 << 20) * 8e-10)
    assert fabric.seconds("all_reduce", 1 << 20, Group(4, 2)) < whole


def test_sources_of_computing() -> None:
    profile = find_model_profile("resnet50")
    assert at_rate(profile, 200.0).step(50) == pytest.approx(0.25)
    assert sum(at_rate(profile, 200.0).blocks(50).backward) > sum(at_rate(profile, 200.0).blocks(50).forward)
    with pytest.raises(InputError, match="has no times; make one with `ringlab profile"):
        as_measured(profile)
    with pytest.raises(InputError, match="rate is 0"):
        at_rate(profile, 0)


@pytest.mark.parametrize(
    ("profile", "machine", "gpus", "nodes"),
    [
        (VGG, "p4d.24xlarge", 8, 1), (VGG, "p4d.24xlarge", 2, 2), (VGG, "p3.16xlarge", 16, 2),
        (VGG, "rtx4090-pcie-4x", 4, 1), (FOUR_BLOCKS, "rtx4090-pcie-4x", 4, 1),
    ],
)  # fmt: skip
def test_parameter_servers_are_as_the_model_that_is_fitted_to_published_trainings(
    profile: ModelProfile, machine: str, gpus: int, nodes: int
) -> None:
    """On 4090s the largest layer of VGG16 decides; where layers are small all of them do, however large a block is."""
    job = TrainingJob(profile, 64, Parallelism(strategy="parameter_server"))
    expected = predict_rate(job, machine, gpus, nodes, 300.0, paths=4)  # one for each of the four 4090s
    fabric = NcclInterconnect(describe_preset(machine, nodes, gpus // nodes))
    found = StepModel(job, at_rate(profile, 300.0), lambda _: fabric).predict(gpus)
    assert found.parts.sync == pytest.approx(expected.parts.sync, rel=0.02)
    assert found.sent_bytes > 0


def test_a_server_on_a_simulated_network_is_naive() -> None:
    cluster = simcomm.star(4, bandwidth="10 Gbit/s", latency="5 us")
    served = SimulatedInterconnect(cluster).serve(1 << 20, 0.0, Group(4))
    assert served == (simcomm.run("all_reduce/naive", cluster, nbytes=1 << 20).elapsed, False)


def test_a_copy_of_a_simulated_network_with_another_algorithm_is_asked_anew() -> None:
    fabric = SimulatedInterconnect(simcomm.star(4, bandwidth="10 Gbit/s", latency="5 us"))
    ring = fabric.seconds("all_reduce", 1 << 20, Group(4))
    naive = fabric.serve(1 << 20, 0.0, Group(4)).seconds
    assert naive > 1.5 * ring == 1.5 * fabric.seconds("all_reduce", 1 << 20, Group(4))


@pytest.mark.parametrize(
    "parallelism",
    [
        Parallelism(), Parallelism(tensor=8), Parallelism(pipeline=8, microbatches=8),
        Parallelism(strategy="parameter_server"), Parallelism(strategy="data_parallel"),
    ],
)  # fmt: skip
def test_a_step_of_every_strategy_waits_for_what_shares_its_cores(parallelism: Parallelism) -> None:
    """Seven others on eight cores."""
    device = MeshDevice(memory_bandwidth=1e12, cores=8)
    model = StepModel(TrainingJob(alike(), 8, parallelism), at_rate(alike(), 1.0), lambda _: Counted(), device)
    of_each = read_parameters()["process_ms"] / 1e3 / 8
    assert model.predict(8).parts.processes == pytest.approx(7 * of_each)


def test_local_sgd_waits_for_processes_where_it_exchanges() -> None:
    """Of a data axis alone in every fourth step; with tensor parallelism in each."""

    def waited(tensor: int, every: int) -> float:
        job = TrainingJob(alike(), 8, Parallelism(tensor=tensor, sync_every=every))
        model = StepModel(job, at_rate(alike(), 1.0), lambda _: Counted(), MeshDevice(memory_bandwidth=1e12))
        return model.predict(8).parts.processes

    assert waited(1, 4) == pytest.approx(waited(1, 1) / 4)
    assert waited(2, 4) == waited(2, 1)


def test_a_step_is_as_the_columns_that_are_fitted_to_published_trainings() -> None:
    """The fit goes over columns, for speed; of all that is published both say the same."""
    values, apart = read_parameters(), list[float]()
    for one in read_series():
        if one.points[0].gpus != 1:
            continue
        for case in cases_of(one)[1:]:
            if case.gpus % case.nodes:
                continue
            columns, rate = make_cases([case]), one.points[0].rate
            fitted = step_times(columns, values, columns.batch / rate)
            found = predict_rate(case.job, case.node, case.gpus, case.nodes, rate, gpu=case.gpu, paths=case.paths)
            apart.append(abs(found.parts.total / float(fitted.total[0]) - 1))
            rests_on = (float(np.asarray(column)[0]) for column in fitted.shares(columns, values))
            assert found.rests_on == pytest.approx(tuple(rests_on), abs=1e-3)
    assert len(apart) > 400 and max(apart) < 2e-3


def test_what_is_not_predicted_is_refused() -> None:
    relu = ModelProfile("relu", "4", 4, "test", (Layer("a", "ReLU", "a", (), 1, 1, 1, 1, 1, 1, 1),))
    with pytest.raises(InputError, match="the profile of 'relu' has no parameters; give a model that is trained"):
        StepModel(TrainingJob(relu, 8), at_rate(relu, 1.0), lambda _: Counted()).predict(8)
    with pytest.raises(InputError, match="take zero1, or pipeline = 1"):
        predict(Counted(), Parallelism(strategy="fsdp", pipeline=2))
    with pytest.raises(InputError, match="6 microbatches are not divided by the 4 stages"):
        predict(Counted(), Parallelism(pipeline=4, schedule="interleaved", virtual=2, microbatches=6), batch=6)


def test_group_of_one_rank_a_host_uses_its_share_of_the_nics() -> None:
    system = describe_preset("p4d.24xlarge", 4, 8)
    seconds = NcclInterconnect(system).seconds("all_reduce", 1e8, Group(4, stride=8))
    least = 2 * 3 / 4 * 1e8 / (system.nic * 1e9 / 8)
    assert least < seconds < 2 * least


def test_group_inside_an_nvlink_domain_of_hosts_keeps_nvlink() -> None:
    system = describe_preset("gb200-nvl72", 1, 72)
    across, inside = (NcclInterconnect(system).seconds("all_reduce", 1e8, group) for group in (Group(18, 4), Group(4)))
    assert across < 4 * inside
