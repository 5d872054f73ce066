"""Forms of parallelism by torch's own classes on four gloo ranks: an oracle of what is predicted to travel and be kept.

One launch carries out all forms. What torch calls, and with how many bytes, is counted where its dispatcher sees it.
"""

from collections import Counter
from functools import lru_cache
from typing import ClassVar

import pytest
import real_workers
import torch
import torch.distributed as dist
from torch import nn

import realcomm
from benchmarks.torch_forms import running, spreading, timing
from benchmarks.torch_forms.running import FormPlan, FormResult, run_forms
from collectives.records.model_profile import ModelProfile
from collectives.training.parallelism import Parallelism
from realcomm.profiling.meta import profile_on_meta
from realcomm.profiling.model_sources import find_model
from simcomm.mesh.calls import Group
from simcomm.mesh.compute import at_rate
from simcomm.mesh.interconnect import Served
from simcomm.mesh.job import TrainingJob
from simcomm.mesh.layers import cut_stages
from simcomm.mesh.step import StepModel, StepPrediction

MODEL = "llama:layers=6,width=32,heads=4,context=16,vocabulary=64,hidden=64"
RANKS, SAMPLES = 4, 16
FORMS = {
    "ddp": Parallelism(data=4, bucket_mb=0.02),
    "zero_redundancy": Parallelism(form="zero_redundancy", data=4),
    "zero2": Parallelism(form="zero2", data=4),
    "fsdp": Parallelism(form="fsdp", data=4),
    "hsdp": Parallelism(form="hsdp", data=4, shard=2),
    "tensor": Parallelism(data=1, tensor=4),
    "sequence": Parallelism(data=1, tensor=4, sequence=True),
    "fsdp x tensor": Parallelism(form="fsdp", data=2, tensor=2),
    "gpipe": Parallelism(data=1, pipeline=4, schedule="gpipe", microbatches=4),
    "1f1b": Parallelism(data=1, pipeline=4, microbatches=8),
    "interleaved": Parallelism(data=1, pipeline=4, schedule="interleaved", virtual=2, microbatches=8),
    "naive": Parallelism(data=1, pipeline=4, schedule="naive"),
    "naive pairs": Parallelism(data=2, pipeline=2, schedule="naive"),
}
PIPELINES = [name for name, form in FORMS.items() if form.pipeline > 1]
NORM = 4 * 32  # bytes of the weights of a norm


class Free:
    """Devices between which everything takes no time."""

    kind, node, nic, links = "", 4, 1e12, None

    def seconds(self, collective: str, nbytes: float, group: Group) -> float:
        return 0.0

    def serve(self, nbytes: float, largest: float, group: Group) -> Served:
        return Served(0.0, is_spread=True)


@lru_cache
def profile() -> ModelProfile:
    return profile_on_meta(find_model(MODEL))


@pytest.fixture(scope="module")
def measured() -> dict[str, list[FormResult]]:
    """What each rank did in each form."""
    plans = []
    for form in FORMS.values():
        cut = cut_stages(profile(), form.pipeline * form.virtual) if form.pipeline > 1 else []
        stages = tuple(tuple(block.name for block in stage if block.parameters) for stage in cut)
        plans.append(FormPlan(MODEL, form, SAMPLES, stages))
    ranks = realcomm.launch(run_forms, RANKS, plans, threads=1, timeout=300)
    return dict(zip(FORMS, zip(*ranks, strict=True), strict=True))


def predicted(name: str) -> StepPrediction:
    form = FORMS[name]
    job = TrainingJob(profile(), SAMPLES // form.data, form, optimizer="adamw")
    return StepModel(job, at_rate(profile(), 1.0), lambda _: Free()).predict(RANKS)


def stage_of(name: str, rank: int) -> int:
    return rank // (FORMS[name].data * FORMS[name].tensor)


def expected_calls(name: str, rank: int) -> Counter[tuple[str, float, int]]:
    calls = predicted(name).calls[stage_of(name, rank)]
    names = {"send_recv": "send"}
    return Counter(
        {(names.get(call.collective, call.collective), call.nbytes, call.group.size): call.times for call in calls}
    )


@pytest.mark.parametrize("name", [name for name in FORMS if name not in ("zero2", "naive pairs")])
def test_what_travels_is_what_torch_calls(measured: dict[str, list[FormResult]], name: str) -> None:
    """Call by call. The gradients of norms are beside it: with ``sequence`` torch's optimizer sums them three times."""
    for rank, result in enumerate(measured[name]):
        found = Counter(map(tuple, result.calls))
        if name == "sequence":
            assert found.pop(("all_reduce", NORM, 4)) == 3 * 13
        assert found == expected_calls(name, rank)


def test_what_travels_is_as_much_where_torch_groups_it_otherwise(measured: dict[str, list[FormResult]]) -> None:
    """FSDP that keeps what it has gathered sends units, not buckets; gradients of pairs are one buffer, not buckets."""
    for name in ("zero2", "naive pairs"):
        for rank, result in enumerate(measured[name]):
            found, expected = Counter[tuple[str, int]](), Counter[tuple[str, int]]()
            for collective, nbytes, ranks in result.calls:
                found[collective, ranks] += nbytes
            for (collective, nbytes, ranks), times in expected_calls(name, rank).items():
                expected[collective, ranks] += round(nbytes) * times
            assert found == expected


@pytest.mark.parametrize("name", FORMS)
def test_what_a_device_keeps_is_what_a_rank_has(measured: dict[str, list[FormResult]], name: str) -> None:
    form = FORMS[name]
    for rank, result in enumerate(measured[name]):
        kept = predicted(name).memory[stage_of(name, rank)]
        within = 0.01 if name == "zero_redundancy" else 1e-9  # it gives whole tensors to each rank
        assert result.held.optimizer == pytest.approx(kept.optimizer, rel=within)
        words = 4 * 64 * 32 * (1 - 1 / form.tensor)  # torch leaves the gradient of divided words whole
        assert result.held.gradients == kept.gradients + (words if form.tensor > 1 and form.data == 1 else 0)
        if name != "zero2":  # whole parameters between forward and backward, which torch then divides
            assert result.held.parameters == kept.parameters


@pytest.mark.parametrize("name", PIPELINES)
def test_as_many_microbatches_are_kept_as_are_in_flight(measured: dict[str, list[FormResult]], name: str) -> None:
    """Activations are those of the meta device, where attention is a fused kernel: within a few percent of these."""
    for rank, result in enumerate(measured[name]):
        assert result.activations == pytest.approx(predicted(name).memory[stage_of(name, rank)].activations, rel=0.1)


@pytest.mark.parametrize("name", FORMS)
def test_every_form_is_the_same_training(measured: dict[str, list[FormResult]], name: str) -> None:
    """The mean of the losses over the samples is the same, whatever shares them."""
    own, averaged = (
        [
            sum(losses) / len(losses)
            for losses in zip(*(one.losses for one in measured[each] if one.losses), strict=True)
        ]
        for each in (name, "ddp")
    )
    assert own == pytest.approx(averaged[: len(own)], rel=1e-5) and own[0] > own[1]


@pytest.mark.slow
def test_what_torch_does_of_its_own_is_timed_where_nothing_travels() -> None:
    """Each rank makes the form on a mesh of its own, in turn with the plain model."""
    forms = [Parallelism(form="fsdp", data=2), Parallelism(data=1, tensor=2),
             Parallelism(form="fsdp", data=2, tensor=2)]  # fmt: skip
    for rank in realcomm.launch(real_workers.meshes_of_own_work, 2, MODEL, 2, forms, threads=1, timeout=300):
        assert rank == [{1}, set()] * len(forms)


class SpreadNowhere:
    """In the place of what spreads a model: the model as it is, and the devices of it and its batches."""

    devices: ClassVar[set[torch.device]] = set()

    def __init__(self, model: nn.Module, *_: object) -> None:
        self.model, self.place = model, {"data": 0}
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        self.devices |= {each.device for each in model.parameters()}

    def forward(self, batch: torch.Tensor) -> None:
        self.devices.add(batch.device)


def test_models_and_batches_lie_on_the_ranks_device(monkeypatch: pytest.MonkeyPatch) -> None:
    meta, form = torch.device("meta"), Parallelism(data=1)
    for module in (running, timing):
        monkeypatch.setattr(module, "own_device", lambda: meta, raising=False)
        monkeypatch.setattr(module, "Spread", SpreadNowhere)
    monkeypatch.setattr(timing, "mesh_of_one", lambda rank, world_size: None)
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)  # type: ignore[attr-defined]
    try:
        run_forms(0, 1, [FormPlan(MODEL, form, SAMPLES, steps=1)])
        timing.time_own_work(0, 1, MODEL, SAMPLES, [form])
    finally:
        dist.destroy_process_group()
    assert SpreadNowhere.devices == {meta}


class NoMesh:
    """A mesh of which nothing is needed."""

    def get_coordinate(self) -> tuple[int, int, int]:
        return 0, 0, 0

    def get_group(self) -> None:
        return None

    def __getitem__(self, axis: str) -> "NoMesh":
        return self


def test_meshes_and_stages_of_pipelines_are_of_the_ranks_device(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu, asked = torch.device("cuda", 1), list[object]()

    def note(device: object, *_: object, **__: object) -> NoMesh:
        asked.append(device)
        return NoMesh()

    monkeypatch.setattr(spreading, "own_device", lambda: gpu, raising=False)
    monkeypatch.setattr(spreading, "init_device_mesh", note)
    monkeypatch.setattr(spreading, "fully_shard", lambda *_, **__: None)
    monkeypatch.setattr(spreading, "PipelineStage", lambda part, stage, stages, device, group: note(device))
    monkeypatch.setitem(spreading.SCHEDULES, "1f1b", lambda *_, **__: None)
    model = find_model(MODEL).build()
    spreading.Spread(model, FORMS["hsdp"], ())
    spreading.Spread(model, Parallelism(data=1, pipeline=2, microbatches=2), (("words",), ("head",)))
    assert asked == ["cuda", "cuda", "cuda", gpu]
