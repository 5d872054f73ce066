"""What a device keeps in memory: the closed forms of the papers, and what is refused."""

from dataclasses import replace

import pytest

from collectives.errors import InputError
from collectives.records.model_profile import Layer, ModelProfile, TransformerShape, find_model_profile
from collectives.training.parallelism import Parallelism
from planner.mesh.job import TrainingJob
from planner.mesh.memory import DeviceMemory, check_fit, largest_batch, memory_of, transformer_activation_bytes
from planner.stages import cut_stages
from simcomm.cluster.hardware import memory_bytes

GPT3 = TransformerShape(96, 12288, 96, 2048, 51200, 96, 4 * 12288)


def alike(blocks: int, parameters: int = 1000, shape: TransformerShape | None = None) -> ModelProfile:
    """A model of blocks that are alike: each keeps 34 bytes of a sample and gives 2 on, in elements of 2 bytes."""
    layers = (Layer(f"l{n}.mlp.a", "Linear", f"l{n}", (parameters,), 10, 20, 3, 2, 8, 34, 2) for n in range(blocks))
    return ModelProfile("alike", "4", 2, "test", tuple(layers), shape)


def keep(profile: ModelProfile, parallelism: Parallelism, batch: int, **more: str) -> list[DeviceMemory]:
    return memory_of(TrainingJob(profile, batch, parallelism, **more))


@pytest.mark.parametrize(("strategy", "gigabytes"), [("ddp", 120), ("zero1", 31.4), ("zero2", 16.6), ("zero3", 1.875)])
def test_states_are_those_of_the_zero_paper(strategy: str, gigabytes: float) -> None:
    """Figure 1: 7.5 billion parameters, 64 devices, Adam, weights and gradients in 16 bits."""
    profile = alike(10, 750_000_000)
    found = keep(profile, Parallelism(strategy=strategy, data=64, half_weights=True), 1, optimizer="adamw")[0]
    assert found.states / 1e9 == pytest.approx(gigabytes, abs=0.05)


def test_hsdp_divides_within_its_groups() -> None:
    whole = keep(alike(4), Parallelism(data=8), 1, optimizer="adamw")[0].states
    assert whole == 16 * 4000
    for shard in (2, 4, 8):
        parallelism = Parallelism(strategy="hsdp", data=8, shard=shard)
        assert keep(alike(4), parallelism, 1, optimizer="adamw")[0].states == whole / shard


def test_activations_are_those_of_megatrons_paper() -> None:
    """Table 2 of Korthikanti et al., in units of s b h."""
    s, b, h, a = GPT3.context, 4, GPT3.width, GPT3.heads
    unit, scores = s * b * h, 5 * a * s / h
    of = {
        (1, False, "none"): 34 + scores,
        (8, False, "none"): 10 + 24 / 8 + scores / 8,
        (8, True, "none"): 34 / 8 + scores / 8,
        (8, False, "selective"): 10 + 24 / 8,
        (8, True, "selective"): 34 / 8,
        (8, False, "full"): 2,
    }
    for (tensor, sequence, recompute), expected in of.items():
        found = transformer_activation_bytes(GPT3, b, tensor=tensor, sequence=sequence, recompute=recompute)
        assert found == pytest.approx(expected * unit)


@pytest.mark.parametrize(
    ("schedule", "virtual", "microbatches", "in_flight"),  # of all blocks, on the first of 4 devices with 8 blocks
    [("gpipe", 1, 8, 8 / 4), ("1f1b", 1, 8, 1.0), ("1f1b", 1, 2, 2 / 4), ("naive", 1, 1, 1 / 4),
     ("interleaved", 2, 8, 1 + 3 / 8)],
)  # fmt: skip
def test_a_pipeline_keeps_what_is_in_flight(schedule: str, virtual: int, microbatches: int, in_flight: float) -> None:
    """Section 4.2.3: L layers' worth with 1F1B, L (1 + (p - 1) / (p v)) interleaved."""
    parallelism = Parallelism(pipeline=4, data=1, schedule=schedule, virtual=virtual, microbatches=microbatches)
    found = keep(alike(8), parallelism, 3 * microbatches, precision="bf16")
    assert found[0].activations == pytest.approx(in_flight * 8 * 34 * 3)
    if schedule == "1f1b" and microbatches == 8:
        assert [one.activations / found[3].activations for one in found] == [4, 3, 2, 1]


def test_recomputing_keeps_what_blocks_were_given_and_one_block() -> None:
    found = keep(alike(8), Parallelism(data=1, recompute="full"), 5, precision="bf16")[0]
    assert found.activations == 5 * (8 * 2 + 34)


def test_tensor_parallel_divides_states_and_part_of_activations() -> None:
    shape = TransformerShape(8, 64, 8, 16, 100, 8, 256)
    one, four, sequence = (
        keep(alike(8, shape=shape), parallelism, 4, precision="bf16", optimizer="adamw")[0]
        for parallelism in (
            Parallelism(data=1),
            Parallelism(data=1, tensor=4),
            Parallelism(data=1, tensor=4, sequence=True),
        )
    )
    assert four.states == one.states / 4
    assert four.activations / one.activations == pytest.approx((10 + 24 / 4) / 34)
    assert sequence.activations / one.activations == pytest.approx(1 / 4)


def test_experts_are_divided_among_their_devices() -> None:
    shape = TransformerShape(8, 64, 8, 16, 100, 8, 256)
    for expert, copies in ((1, 8), (4, 2), (8, 1)):
        parallelism = Parallelism(data=8, expert=expert, experts=8)
        assert keep(alike(8, shape=shape), parallelism, 1)[0].parameters == 4 * 8000 * copies


def test_ddp_has_buckets_and_fsdp_gathered_blocks() -> None:
    profile = alike(4, 10_000_000)
    assert keep(profile, Parallelism(data=2), 1)[0].buffers == 4 * 40_000_000
    assert keep(profile, Parallelism(data=2, bucket_view=True), 1)[0].buffers == 0
    assert keep(profile, Parallelism(strategy="fsdp", data=2), 1)[0].buffers == 4 * 3 * 10_000_000
    assert keep(profile, Parallelism(strategy="zero2", data=2), 1)[0].buffers == 2 * 25 * 2**20


def test_what_does_not_fit_is_refused_with_what_would() -> None:
    memory = memory_bytes("RTX 4090")
    job = TrainingJob(find_model_profile("resnet50"), 1, Parallelism(data=2))
    largest = largest_batch(job, memory)
    check_fit(replace(job, batch=largest), memory, "an RTX 4090")
    with pytest.raises(InputError, match=rf"batch_size {largest + 1} does not fit .* up to {largest} samples a device"):
        check_fit(replace(job, batch=largest + 1), memory, "an RTX 4090")
    with pytest.raises(InputError, match='not one sample fits: strategy = "fsdp"'):
        check_fit(TrainingJob(find_model_profile("llama-7b"), 1, Parallelism(data=8), optimizer="adamw"), memory, "it")
    parallelism = Parallelism(strategy="fsdp", data=8, recompute="full")
    check_fit(TrainingJob(find_model_profile("llama-7b"), 1, parallelism, "bf16", "adamw"), memory, "it")


@pytest.mark.parametrize(
    ("given", "devices", "said"),
    [
        ({"data": 2, "tensor": 4}, 16, r"data 2 x tensor 4 x pipeline 1 = 8 devices, and there are 16; .* data = 4"),
        ({"tensor": 3}, 8, "give tensor x pipeline that divides 8"),
        ({"expert": 4, "experts": 8}, 6, "expert is 4 and must divide data, which is 6"),
        ({"strategy": "hsdp", "shard": 3}, 8, "shard is 3 and must divide data"),
    ],
)
def test_a_mesh_that_is_not_all_devices_is_refused(given: dict[str, object], devices: int, said: str) -> None:
    with pytest.raises(InputError, match=said):
        Parallelism(**given).for_devices(devices)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"strategy": "fsdpp"}, "strategy 'fsdpp' is not known"),
        ({"schedule": "naive", "pipeline": 2, "microbatches": 4}, "the naive schedule has one"),
        ({"virtual": 2}, "interleaved"),
        ({"sequence": True}, "tensor above 1"),
        ({"strategy": "data_parallel", "tensor": 2}, "data_parallel is one process"),
        ({"expert": 3, "experts": 8}, "a multiple of it; they are 8"),
        ({"tensor": 0}, "tensor is 0"),
    ],
)
def test_strategies_that_cannot_be_are_refused(given: dict[str, object], said: str) -> None:
    with pytest.raises(InputError, match=said):
        Parallelism(**given)


def test_a_model_is_refused_for_what_it_cannot() -> None:
    resnet = find_model_profile("resnet18")
    with pytest.raises(InputError, match="tensor is of transformers"):
        keep(resnet, Parallelism(data=1, tensor=2), 1)
    with pytest.raises(InputError, match="40 stages of 'resnet18', which can be cut into"):
        keep(resnet, Parallelism(data=1, pipeline=40), 40)
    with pytest.raises(InputError, match="batch_size 3 is not divided by 2 microbatches"):
        keep(resnet, Parallelism(data=1, pipeline=2), 3)
    with pytest.raises(InputError, match="must divide the 12 heads"):
        keep(find_model_profile("gpt2"), Parallelism(data=1, tensor=8), 1)


@pytest.mark.parametrize("stages", [1, 2, 4, 8])
def test_stages_are_cut_evenly(stages: int) -> None:
    assert [len(stage) for stage in cut_stages(alike(8), stages)] == [8 // stages] * stages
