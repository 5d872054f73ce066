"""Steps of jobs on devices: volumes of the papers, pipelines in closed form, memory, and what is rejected."""

from dataclasses import dataclass, field, replace

import pytest

from collectives.errors import InputError
from collectives.records.model_profile import Layer, ModelProfile, TransformerShape, find_model_profile
from collectives.training.parallelism import Parallelism
from planner.calls import stage_calls, stage_states
from planner.gpus import find_gpu
from planner.hosts import SHARES, Group, Host, host_of_preset
from planner.jobs import NEVER, Job
from planner.pipeline import order_of
from planner.prediction import StepParts, StepPrediction, TooLittleMemory, Training
from planner.rates import as_measured, at_rate

SHAPE = TransformerShape(8, 64, 8, 16, 100, 8, 256)
RESNET, VGG = find_model_profile("resnet50"), find_model_profile("vgg16")
DGX = host_of_preset("dgx-a100")


@dataclass(eq=False)
class Counted:
    """Simulates a network on which a byte takes ``byte_s`` seconds, and records the requested collectives."""

    byte_s: float = 0.0
    calls: list[tuple[str, float, Group]] = field(default_factory=list)

    def __call__(self, collective: str, nbytes: float, group: Group) -> float:
        self.calls.append((collective, nbytes, group))
        share = 2 * (group.size - 1) if collective == "serve" else SHARES[collective](group.size)
        return self.byte_s * nbytes * share


def alike(blocks: int = 8, shape: TransformerShape | None = SHAPE, parameters: int = 1000) -> ModelProfile:
    layers = (Layer(f"l{n}.mlp.a", "Linear", f"l{n}", (parameters,), 100, 200, 0, 0, 0, 34, 64) for n in range(blocks))
    name = "gpt:layers=8,width=64,heads=8,context=16,vocabulary=100" if shape else "alike"
    return ModelProfile(name, "4", 4, "test", tuple(layers), shape)


def predict(
    network: Counted, parallelism: Parallelism, batch: int = 8, devices: int = 8, **more: object
) -> StepPrediction:
    """Return the step of a model with eight equal blocks that computes for one second per sample."""
    host, job = Host("counted", None, 8, "", 0, 0.0, network=network), Job(alike(), batch, parallelism, **more)
    return Training(job, host, at_rate(alike(), 1.0)).predict(devices)


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "interleaved"])
def test_pipeline_schedule_runs_each_forward_before_its_backward(schedule: str) -> None:
    virtual = 2 if schedule == "interleaved" else 1
    for device in range(4):
        order = order_of(schedule, device, 4, 8, virtual)
        assert len({*order}) == len(order) == 2 * 8 * virtual
        for work in order:
            if work.is_backward:
                assert order.index(work._replace(is_backward=False)) < order.index(work)


def test_pipeline_bubble_equals_its_closed_form() -> None:
    for microbatches, schedule in ((4, "gpipe"), (8, "1f1b")):
        parallelism = Parallelism(data=2, pipeline=4, microbatches=microbatches, schedule=schedule)
        prediction = predict(Counted(), parallelism)
        assert prediction.parts.compute == pytest.approx(8 / 4)
        assert prediction.parts.pipeline / prediction.parts.total == pytest.approx(3 / (microbatches + 3))
    naive = predict(Counted(), Parallelism(data=2, pipeline=4, schedule="naive"))
    assert naive.parts.total == pytest.approx(8.0)  # only one device computes at a time
    assert naive.efficiency == pytest.approx(1 / 4)


def test_pipeline_stage_waits_for_its_messages() -> None:
    network = Counted(byte_s=1e-3)
    prediction = predict(network, Parallelism(data=1, pipeline=8, schedule="naive"), batch=1)
    assert prediction.parts.pipeline == pytest.approx(7 / 8 + 2 * 7 * 64 * 1e-3)
    assert {call[:2] for call in network.calls} == {("send_recv", 64.0)}


@pytest.mark.parametrize(("strategy", "times"), [("ddp", 1), ("zero2", 1), ("zero3", 1.5), ("fsdp", 1.5)])
def test_zero_stages_send_the_bytes_stated_in_the_zero_paper(strategy: str, times: float) -> None:
    """According to section 7, stages 1 and 2 send as much as DDP, and stage 3 sends 1.5 times as much."""
    (calls,) = stage_calls(Job(alike(), 8, Parallelism(strategy=strategy)).on(8))
    sent = (call.times * call.nbytes * SHARES[call.collective](call.group.size) for call in calls)
    assert sum(sent) == pytest.approx(times * 2 * 7 / 8 * 4 * 8000)


def test_hsdp_shards_within_hosts_and_all_reduces_across_hosts() -> None:
    (calls,) = stage_calls(Job(alike(), 8, Parallelism(strategy="hsdp", shard=4)).on(8))
    assert {(call.collective, call.group) for call in calls} == {
        ("all_gather", Group(4, 1)), ("reduce_scatter", Group(4, 1)), ("all_reduce", Group(2, 4)),
    }  # fmt: skip


def test_tensor_parallelism_needs_four_all_reduces_per_layer() -> None:
    prediction = predict(Counted(byte_s=1e-6), Parallelism(data=2, tensor=4))
    once = 1e-6 * 2 * 3 / 4 * 8 * SHAPE.context * SHAPE.width * 4
    assert prediction.parts.tensor == pytest.approx(8 * 4 * once)
    assert prediction.parts.compute == pytest.approx(8 / 4)
    sequence = predict(Counted(byte_s=1e-6), Parallelism(data=2, tensor=4, sequence=True))
    assert sequence.parts.tensor == pytest.approx(prediction.parts.tensor)
    again = predict(Counted(byte_s=1e-6), Parallelism(data=2, tensor=4, recompute="full"))
    assert again.parts.tensor == pytest.approx(1.5 * prediction.parts.tensor)
    assert again.parts.compute == pytest.approx(4 / 3 * prediction.parts.compute, rel=0.05)


def test_experts_need_four_all_to_alls_per_layer() -> None:
    prediction = predict(Counted(byte_s=1e-6), Parallelism(expert=4, experts=8, top_k=2))
    once = 1e-6 * 3 / 4 * 8 * SHAPE.context * SHAPE.width * 4 * 2
    assert prediction.parts.expert == pytest.approx(8 * 4 * once)
    assert prediction.parts.tensor == 0


def test_expert_parallelism_reduces_gradient_synchronization() -> None:
    shares = (Parallelism(experts=8, expert=expert) for expert in (1, 4, 8))
    one, few, many = (predict(Counted(byte_s=1e-6), parallelism).parts.sync for parallelism in shares)
    assert one > 4 * few > 4 * many > 0


def test_fsdp_exposes_the_first_gather_and_the_last_scatter() -> None:
    """A gather or scatter takes a tenth of a block's forward."""
    prediction = predict(Counted(byte_s=1 / 3 / 10 / (4000 * 7 / 8)), Parallelism(strategy="fsdp"), batch=8)
    assert prediction.parts.sync == pytest.approx(2 / 3 / 10, rel=0.05)


@pytest.mark.parametrize(("strategy", "sent"), [("data_parallel", 2), ("parameter_server", 2 * 7)])
def test_replicas_without_ddp_do_not_overlap_their_sync(strategy: str, sent: int) -> None:
    parts = predict(Counted(byte_s=1e-6), Parallelism(strategy=strategy)).parts
    assert parts.sync == pytest.approx(sent * 4 * 8000 * 1e-6)
    assert parts.total == pytest.approx(8 + parts.sync)


@pytest.mark.parametrize("strategy", [{}, {"strategy": "fsdp"}, {"tensor": 2, "pipeline": 2}, {"strategy": "zero1"}])
def test_interval_contains_the_predicted_rate(strategy: dict[str, object]) -> None:
    prediction = predict(Counted(byte_s=1e-5), Parallelism(**strategy))
    assert prediction.rate == pytest.approx(8 * prediction.job.parallelism.data / prediction.parts.total)
    low, high = prediction.interval()
    assert low < prediction.rate < high


@pytest.mark.parametrize("parallelism", [Parallelism(), Parallelism(pipeline=8, microbatches=8)])
def test_time_of_host_processes_is_inverse_to_cpu_cores(parallelism: Parallelism) -> None:
    training = Training(Job(VGG, 64, parallelism), DGX, at_rate(VGG, 300.0))
    few = replace(training, host=replace(DGX, cores=DGX.cores // 4))
    assert few.predict(8).parts.processes == pytest.approx(4 * training.predict(8).parts.processes)
    assert training.predict(1 if parallelism.pipeline == 1 else 8).parts.processes >= 0


def predict_vgg(**keys: object) -> StepParts:
    return Training(Job(VGG, 64, Parallelism(**keys)), DGX, at_rate(VGG, 300.0)).predict(8).parts


def test_local_sgd_synchronizes_once_in_several_steps() -> None:
    once, rarely, never = (predict_vgg(sync_every=every) for every in (1, 4, NEVER))
    for name in ("sync", "copies", "processes"):
        assert getattr(rarely, name) == pytest.approx(getattr(once, name) / 4)
        assert getattr(never, name) == 0


def test_compute_time_needs_a_positive_rate_or_measured_times() -> None:
    assert at_rate(RESNET, 200.0).sample == pytest.approx(1 / 200)
    with pytest.raises(InputError, match="has no times; make one with `ringlab profile"):
        as_measured(RESNET)
    with pytest.raises(InputError, match="rate must be a positive number"):
        at_rate(RESNET, 0)


@pytest.mark.parametrize(("strategy", "bytes_"), [("ddp", 16), ("zero1", 8 + 8 / 64), ("zero2", 4 + 12 / 64),
                                              ("zero3", 16 / 64)])  # fmt: skip
def test_states_are_sharded_as_in_the_zero_paper(strategy: str, bytes_: float) -> None:
    job = Job(alike(), 8, Parallelism(strategy=strategy), optimizer="adamw").on(64)
    (states,) = stage_states(job)
    assert sum(states) == pytest.approx(bytes_ * 8000)


def test_pipeline_divides_the_states_among_its_devices() -> None:
    job = Job(alike(), 8, Parallelism(data=1, pipeline=4), optimizer="adamw").on(4)
    assert [sum(states) for states in stage_states(job)] == [16 * 2000] * 4


def on_4090(batch: int, parallelism: Parallelism, model: str = "resnet50") -> Training:
    profile, host = find_model_profile(model), host_of_preset("rtx4090-pcie-4x")
    return Training(Job(profile, batch, parallelism), host, at_rate(profile, 100.0))


def test_error_of_a_too_large_batch_names_a_batch_that_fits() -> None:
    message = r"batch_size 600 .* only 85% of 24 GiB .* up to \d+ samples"
    with pytest.raises(TooLittleMemory, match=message) as refused:
        on_4090(600, Parallelism()).predict(4)
    assert refused.value.needed > refused.value.available
    largest = int(str(refused.value).rpartition("up to ")[2].split()[0])
    prediction = on_4090(largest, Parallelism()).predict(4)
    assert prediction.memory["total"] < 0.85 * 24 * 2**30 and prediction.chance_to_run is not None
    with pytest.raises(InputError, match='not even one sample fits; strategy = "fsdp"'):
        on_4090(1, Parallelism(), "llama-7b").predict(4)


def test_recomputation_saves_activations_and_adds_compute() -> None:
    stored, again = (on_4090(32, Parallelism(recompute=recompute)).predict(4) for recompute in ("none", "full"))
    assert again.memory["activations"] < 0.7 * stored.memory["activations"]
    assert again.parts.compute == pytest.approx(4 / 3 * stored.parts.compute, rel=0.05)


def test_larger_of_two_stages_has_half_of_the_states_or_more() -> None:
    meshes = Parallelism(), Parallelism(data=2, pipeline=2)
    single, halved = (on_4090(4, mesh, "vgg16").predict(4) for mesh in meshes)
    assert 0.5 <= halved.memory["optimizer"] / single.memory["optimizer"] < 1


@pytest.mark.parametrize(
    ("given", "devices", "message"),
    [
        ({"data": 2, "tensor": 4}, 16, r"data 2 x tensor 4 x pipeline 1 does not fit 16 devices; .* data = 4"),
        ({"tensor": 3}, 8, "set tensor x pipeline to a divisor of 8"),
        ({"expert": 4, "experts": 8}, 6, "data .6. must be a multiple of expert .4."),
        ({"strategy": "hsdp", "shard": 3}, 8, "data .8. must be a multiple of shard .3."),
    ],
)
def test_mesh_must_match_the_number_of_devices(given: dict[str, object], devices: int, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Parallelism(**given).for_devices(devices)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"strategy": "fsdpp"}, "unknown strategy 'fsdpp'"),
        ({"schedule": "naive", "pipeline": 2, "microbatches": 4}, "microbatches must be 1 for the naive schedule"),
        ({"virtual": 2}, "interleaved"),
        ({"sequence": True}, "sequence requires tensor parallelism"),
        ({"strategy": "data_parallel", "tensor": 2}, "must be 1 with strategy data_parallel"),
        ({"expert": 3, "experts": 8}, r"a multiple of expert \(3\), not 8"),
        ({"tensor": 0}, "tensor must be a positive integer, not 0"),
    ],
)
def test_contradictory_strategies_are_rejected(given: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Parallelism(**given)


@pytest.mark.parametrize(
    ("model", "strategy", "batch", "message"),
    [
        ("resnet50", {"data": 1, "tensor": 2}, 8, "tensor requires a transformer"),
        ("resnet50", {"data": 1, "pipeline": 40}, 40, "'resnet50' can be split into at most .* stages, not 40"),
        ("resnet50", {"data": 1, "pipeline": 2}, 3, "batch_size must be a multiple of the 2 microbatches, not 3"),
        ("gpt2", {"data": 1, "tensor": 8}, 8, "KV heads .12. must be a multiple of tensor .8."),
        ("resnet50", {"strategy": "fsdp", "pipeline": 2}, 8, "use zero1 or pipeline = 1"),
        ("resnet50", {"pipeline": 4, "schedule": "interleaved", "virtual": 2, "microbatches": 6}, 6,
         "microbatches must be a multiple of the 4 stages, not 6"),
    ],
)  # fmt: skip
def test_strategy_that_the_model_does_not_support_is_rejected(
    model: str, strategy: dict[str, object], batch: int, message: str
) -> None:
    parallelism, profile = Parallelism(**strategy), find_model_profile(model)
    devices = max(1, parallelism.devices) if parallelism.data else 8
    host = Host("counted", None, 64, "", 0, 0.0, network=Counted())
    with pytest.raises(InputError, match=message):
        Training(Job(profile, batch, parallelism), host, at_rate(profile, 1.0)).predict(devices)


def test_model_without_parameters_is_rejected() -> None:
    relu = ModelProfile("relu", "4", 4, "test", (Layer("a", "ReLU", "a", (), 1, 1, 1, 1, 1, 1, 1),))
    with pytest.raises(InputError, match="the profile of 'relu' has no parameters; use a model with trainable"):
        Training(Job(relu, 8), DGX, at_rate(relu, 1.0)).predict(8)


def width(model: str, host: Host, devices: int) -> float:
    """Return the ratio between the high end of the interval and the rate."""
    job = Job(find_model_profile(model), 16, precision="bf16", optimizer="adamw")
    prediction = Training(job, host, at_rate(job.model, 100.0) if model == "resnet50" else None).predict(devices)
    return prediction.interval()[1] / prediction.rate


@pytest.mark.parametrize("model", ["resnet50", "gpt2"])
def test_interval_widens_over_pcie_or_tcp_without_published_runs(model: str) -> None:
    pcie, tcp = host_of_preset("dgx-a100", link="pcie"), host_of_preset("dgx-a100", net="tcp")
    assert width(model, pcie, 1) == pytest.approx(width(model, DGX, 1))
    assert width(model, pcie, 8) > 1.1 * width(model, DGX, 8)
    assert width(model, tcp, 16) > 1.1 * width(model, DGX, 16)


def test_interval_widens_on_a_gpu_without_published_runs() -> None:
    gpu = find_gpu("H100 SXM")
    seen, unseen = (width("gpt2-large", replace(DGX, gpu=board), 1) for board in (gpu, gpu._replace(name="L40S")))
    assert unseen > 1.05 * seen
