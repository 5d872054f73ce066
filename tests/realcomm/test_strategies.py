"""Parallelism strategies by torch's classes on four gloo ranks: an oracle of predicted traffic and memory.

One launch carries out all strategies. What torch calls, and with how many bytes, is counted where its dispatcher sees
it.
"""

from collections import Counter
from functools import lru_cache
from pathlib import Path
from typing import ClassVar

import pytest
import real_workers
import torch
import torch.distributed as dist
from torch import nn

import realcomm
from benchmarks.torch_strategies import running
from benchmarks.torch_strategies.running import CountedStrategy, run_strategies
from collectives.records.model_profile import ModelProfile
from collectives.training.parallelism import Parallelism
from collectives.training.recipe import Recipe
from collectives.training.workload import Training
from planner.hosts import Group
from planner.mesh.compute import at_rate
from planner.mesh.interconnect import Served
from planner.mesh.job import TrainingJob
from planner.mesh.prediction import StepPrediction
from planner.mesh.step import StepModel
from realcomm.execution.own_collective import torchs_function
from realcomm.profiling.meta import profile_on_meta
from realcomm.profiling.model_sources import find_model
from realcomm.strategies import pieces, spread, training
from realcomm.strategies import plan as strategies_plan
from realcomm.strategies.blocks import named_blocks
from realcomm.strategies.plan import StrategyPlan, batches_of, build
from realcomm.strategies.training import StrategyResult, train_alone
from ringlab.commands.measuring.strategy_job import plan_strategy

RANKS, SAMPLES = 4, 16
LAYERS = 2  # enough for two stages
STRATEGIES = {
    "ddp": Parallelism(data=4, bucket_mb=0.02),
    "zero_redundancy": Parallelism(strategy="zero_redundancy", data=4),
    "zero2": Parallelism(strategy="zero2", data=4),
    "fsdp": Parallelism(strategy="fsdp", data=4),
    "hsdp": Parallelism(strategy="hsdp", data=4, shard=2),
    "tensor": Parallelism(data=1, tensor=4),
    "sequence": Parallelism(data=1, tensor=4, sequence=True),
    "fsdp x tensor": Parallelism(strategy="fsdp", data=2, tensor=2),
    "gpipe": Parallelism(data=1, pipeline=4, schedule="gpipe", microbatches=4),
    "1f1b": Parallelism(data=1, pipeline=4, microbatches=8),
    "interleaved": Parallelism(data=1, pipeline=4, schedule="interleaved", virtual=2, microbatches=8),
    "naive": Parallelism(data=1, pipeline=4, schedule="naive"),
    "naive pairs": Parallelism(data=2, pipeline=2, schedule="naive"),
}
PIPELINES = [name for name, parallelism in STRATEGIES.items() if parallelism.pipeline > 1]
NORM = 4 * 32  # bytes of the weights of a norm


class Free:
    """Devices between which everything takes no time."""

    kind, node, nic, links = "", 4, 1e12, None

    def seconds(self, collective: str, nbytes: float, group: Group) -> float:
        return 0.0

    def serve(self, nbytes: float, largest: float, group: Group) -> Served:
        return Served(0.0, is_spread=True)


def model_of(parallelism: Parallelism) -> str:
    layers = LAYERS if parallelism.pipeline * parallelism.virtual <= 2 else 6  # enough for eight stages
    return f"llama:layers={layers},width=32,heads=4,context=16,vocabulary=64,hidden=64"


@lru_cache
def profile_of(model: str) -> ModelProfile:
    return profile_on_meta(find_model(model))


MESHES = {  # which are trained only
    "ddp x tensor": Parallelism(data=2, tensor=2),
    "fsdp x pipeline": Parallelism(strategy="fsdp", data=2, pipeline=2, microbatches=2),
    "ddp x interleaved": Parallelism(data=2, pipeline=2, schedule="interleaved", virtual=2),
    "sequence x pipeline": Parallelism(data=1, tensor=2, sequence=True, pipeline=2, microbatches=2),
    "pieces": Parallelism(data=4, microbatches=2),
}
NETWORK = """
from torch import nn
def build():
    return nn.Sequential(nn.Flatten(), nn.Linear(3072, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 8), nn.ReLU(),
                         nn.Linear(8, 10))
"""
OF_NETWORK = {
    "perceptron by fsdp": Parallelism(strategy="fsdp", data=4),
    "perceptron by 1f1b": Parallelism(data=2, pipeline=2, microbatches=2),
}
TRAINED = [*STRATEGIES, *MESHES, *OF_NETWORK]
STEPS = 3
KEPT = ("fsdp x tensor", "interleaved", "perceptron by fsdp")  # whose weights are tried each time


def plan_of(parallelism: Parallelism, model: str = "", sample: tuple[int, ...] | None = None) -> StrategyPlan:
    model = model or model_of(parallelism)
    known = profile_on_meta(find_model(model, sample))
    return plan_strategy(model, known, parallelism, SAMPLES, Recipe(optimizer="adamw"), sample)._replace(steps=0)


def on_digits(parallelism: Parallelism, model: str) -> StrategyPlan:
    digits = Training(None, batch_size=SAMPLES // parallelism.data, random_crop=2, flip=True)
    return plan_of(parallelism, model, digits.image_shape)._replace(images=digits)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where a network is, and the weights of each training."""
    found = tmp_path_factory.mktemp("trained")
    (found / "network.py").write_text(NETWORK)
    return found


@pytest.fixture(scope="module")
def plans(folder: Path) -> list[StrategyPlan]:
    """What is trained: on random words, and on digits."""
    found = [plan_of(strategy) for strategy in (*STRATEGIES.values(), *MESHES.values())]
    found += [on_digits(strategy, f"{folder / 'network.py'}:build") for strategy in OF_NETWORK.values()]
    return [plan._replace(steps=STEPS, checked=STEPS) for plan in found]


@pytest.fixture(scope="module")
def ranks(folder: Path, plans: list[StrategyPlan]) -> list[tuple[list[CountedStrategy], list[StrategyResult]]]:
    """What each rank did with each strategy, and in each training, all in one launch."""
    counted = [plan_of(strategy) for strategy in STRATEGIES.values()]
    return realcomm.launch(real_workers.count_and_train, RANKS, counted, plans, folder, threads=1, timeout=300)


@pytest.fixture(scope="module")
def measured(ranks: list[tuple[list[CountedStrategy], list[StrategyResult]]]) -> dict[str, list[CountedStrategy]]:
    """What torch called and kept on each rank with each strategy."""
    return dict(zip(STRATEGIES, zip(*(one for one, _ in ranks), strict=True), strict=True))


@pytest.mark.parametrize("name", TRAINED)
def test_every_strategy_loses_what_one_rank_alone_does(
    ranks: list[tuple[list[CountedStrategy], list[StrategyResult]]], name: str
) -> None:
    results = [trained[TRAINED.index(name)] for _, trained in ranks]
    own = [sum(each) / len(each) for each in zip(*(one.losses for one in results if one.losses), strict=True)]
    assert results[0].alone is not None and own == pytest.approx(results[0].alone.losses, rel=1e-5)
    assert len({*own}) == STEPS


@pytest.mark.usefixtures("ranks")
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name not in KEPT)) for name in TRAINED]
)
def test_weights_are_kept_whole_and_by_the_names_of_the_model(
    folder: Path, plans: list[StrategyPlan], name: str
) -> None:
    """They lose in the next step what one rank alone does there."""
    place = TRAINED.index(name)
    plan = plans[place]._replace(steps=STEPS + 1, checked=STEPS + 1)
    model = build(plan)
    model.load_state_dict(torch.load(folder / f"{place}.pt"))
    replicas = [[*batches_of(plan, number)][STEPS] for number in range(plan.parallelism.data)]
    pieces = [
        zip(samples.chunk(plan.parallelism.pieces), aims.chunk(plan.parallelism.pieces), strict=True)
        for samples, aims in replicas
    ]
    losses = [float(spread.loss_of(model(samples), aims).detach()) for each in pieces for samples, aims in each]
    assert sum(losses) / len(losses) == pytest.approx(train_alone(plan).losses[STEPS], rel=1e-5)


def predicted(name: str) -> StepPrediction:
    parallelism = STRATEGIES[name]
    profile = profile_of(model_of(parallelism))
    job = TrainingJob(profile, SAMPLES // parallelism.data, parallelism, optimizer="adamw")
    return StepModel(job, at_rate(profile, 1.0), lambda _: Free()).predict(RANKS)


def stage_of(name: str, rank: int) -> int:
    return rank // (STRATEGIES[name].data * STRATEGIES[name].tensor)


def expected_calls(name: str, rank: int) -> Counter[tuple[str, float, int]]:
    calls = predicted(name).calls[stage_of(name, rank)]
    names = {"send_recv": "send"}
    return Counter(
        {(names.get(call.collective, call.collective), call.nbytes, call.group.size): call.times for call in calls}
    )


@pytest.mark.parametrize("name", [name for name in STRATEGIES if name not in ("zero2", "naive pairs")])
def test_what_travels_is_what_torch_calls(measured: dict[str, list[CountedStrategy]], name: str) -> None:
    """Call by call. The gradients of norms are beside it: with ``sequence`` torch's optimizer sums them three times."""
    for rank, result in enumerate(measured[name]):
        found = Counter(map(tuple, result.calls))
        if name == "sequence":
            assert found.pop(("all_reduce", NORM, 4)) == 3 * (2 * LAYERS + 1)
        assert found == expected_calls(name, rank)


def test_what_travels_is_as_much_where_torch_groups_it_otherwise(measured: dict[str, list[CountedStrategy]]) -> None:
    """FSDP that keeps what it has gathered sends units, not buckets; gradients of pairs are one buffer, not buckets."""
    for name in ("zero2", "naive pairs"):
        for rank, result in enumerate(measured[name]):
            found, expected = Counter[tuple[str, int]](), Counter[tuple[str, int]]()
            for collective, nbytes, ranks in result.calls:
                found[collective, ranks] += nbytes
            for (collective, nbytes, ranks), times in expected_calls(name, rank).items():
                expected[collective, ranks] += round(nbytes) * times
            assert found == expected


@pytest.mark.parametrize("name", STRATEGIES)
def test_what_a_device_keeps_is_what_a_rank_has(measured: dict[str, list[CountedStrategy]], name: str) -> None:
    parallelism = STRATEGIES[name]
    for rank, result in enumerate(measured[name]):
        kept = predicted(name).memory[stage_of(name, rank)]
        within = 0.01 if name == "zero_redundancy" else 1e-9  # it gives whole tensors to each rank
        assert result.held.optimizer == pytest.approx(kept.optimizer, rel=within)
        words = 4 * 64 * 32 * (1 - 1 / parallelism.tensor)  # torch leaves the gradient of divided words whole
        assert result.held.gradients == kept.gradients + (
            words if parallelism.tensor > 1 and parallelism.data == 1 else 0
        )
        if name != "zero2":  # whole parameters between forward and backward, which torch then divides
            assert result.held.parameters == kept.parameters


@pytest.mark.parametrize("name", PIPELINES)
def test_as_many_microbatches_are_kept_as_are_in_flight(measured: dict[str, list[CountedStrategy]], name: str) -> None:
    """Activations are those of the meta device, where attention is a fused kernel: within a few percent of these."""
    for rank, result in enumerate(measured[name]):
        assert result.activations == pytest.approx(predicted(name).memory[stage_of(name, rank)].activations, rel=0.1)


class SpreadNowhere:
    """In the place of what spreads a model: the model as it is, its devices, and those of its batches."""

    models: ClassVar[set[torch.device]] = set()
    batches: ClassVar[set[torch.device]] = set()

    def __init__(self, model: nn.Module, *_: object, **__: object) -> None:
        self.model, self.place = model, {"data": 0}
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        self.models |= {each.device for each in model.parameters()}

    def forward_and_back(self, batch: torch.Tensor, targets: torch.Tensor) -> None:
        self.batches |= {batch.device, targets.device}


def test_whole_models_stay_on_the_cpu_and_batches_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    meta, plan = torch.device("meta"), plan_of(Parallelism(data=1))
    for module in (running, pieces, strategies_plan):
        monkeypatch.setattr(module, "own_device", lambda: meta, raising=False)
        monkeypatch.setattr(module, "Spread", SpreadNowhere, raising=False)
    monkeypatch.setattr(pieces, "mesh_of", lambda *_: NoMesh())
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)  # type: ignore[attr-defined]
    try:
        run_strategies(0, 1, [plan._replace(steps=1)])
        pieces.silent_step(plan, 0, 1)()
    finally:
        dist.destroy_process_group()
    assert (SpreadNowhere.models, SpreadNowhere.batches) == ({torch.device("cpu")}, {meta})


class NoMesh:
    """A mesh of which nothing is needed."""

    mesh_dim_names: ClassVar[tuple[str, ...]] = ("pipeline", "data", "tensor")

    def get_coordinate(self) -> tuple[int, int, int]:
        return 0, 0, 0

    def get_group(self) -> None:
        return None

    def __getitem__(self, axis: object) -> "NoMesh":
        return self


def test_meshes_and_stages_of_pipelines_are_of_the_ranks_device(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu, asked, moved = torch.device("cuda", 1), list[object](), list[tuple[torch.device, set[nn.Parameter]]]()

    def parameters(module: nn.Module) -> set[nn.Parameter]:
        return {*module.parameters()}

    def note(device: object, *_: object, **__: object) -> NoMesh:
        asked.append(device)
        return NoMesh()

    def note_move(module: nn.Module, device: torch.device) -> nn.Module:
        moved.append((device, parameters(module)))
        return module

    monkeypatch.setattr(spread, "own_device", lambda: gpu, raising=False)
    monkeypatch.setattr(spread, "init_device_mesh", note)
    monkeypatch.setattr(spread, "fully_shard", lambda *_, **__: None)
    monkeypatch.setattr(spread, "move", note_move)
    monkeypatch.setattr(spread, "PipelineStage", lambda part, stage, stages, device, group: note(device))
    monkeypatch.setitem(spread.SCHEDULES, "1f1b", lambda *_, **__: None)
    model, recipe = find_model(model_of(STRATEGIES["naive"])).build(), Recipe()
    spread.Spread(model, STRATEGIES["hsdp"], recipe)
    halves = ("words", "blocks.0"), ("last_norm", "head")
    assert not moved, "torch shards each unit when it has moved it"
    found = spread.Spread(model, Parallelism(data=1, pipeline=2, microbatches=2), recipe, stages=halves)
    assert asked == ["cuda", "cuda", gpu]
    assert moved == [(gpu, parameters(found.model))] and moved[0][1] < parameters(model)


def test_a_model_that_does_not_fit_alone_is_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    def train(plan: StrategyPlan) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(training, "train_alone", train)
    assert training._train_alone_if_it_fits(plan_of(Parallelism(data=2))) is None


def test_older_names_of_torch_serve_where_the_new_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(dist, "all_gather_single", raising=False)
    found = torchs_function("all_gather_single", "all_gather_into_tensor")
    assert found is dist.all_gather_into_tensor


def test_blocks_of_a_resnet_one_after_the_other_are_the_model() -> None:
    model = find_model("resnet18", (3, 32, 32)).build().eval()
    images = torch.randn(2, 3, 32, 32)
    assert torch.equal(nn.Sequential(*named_blocks(model, "resnet18").values())(images), model(images))
