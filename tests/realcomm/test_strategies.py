"""Parallelism strategies by torch's own classes on four gloo ranks: an oracle for predicted calls and memory.

One launch runs all of them. Calls and bytes are counted in torch's dispatcher. Tests loop over the strategies, so that
parallel test workers do not repeat the launch.
"""

from collections import Counter
from collections.abc import Collection, Iterable
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import pytest
import real_workers
import torch
from torch import nn

import realcomm
from benchmarks.torch_strategies.running import CountedStrategy
from collectives.errors import InputError
from collectives.records.model_profile import ModelProfile
from collectives.training.parallelism import Parallelism
from collectives.training.recipe import Recipe
from collectives.training.workload import Training
from planner.calls import stage_calls, stage_states
from planner.jobs import Job
from realcomm.profiling.meta import profile_on_meta
from realcomm.profiling.model_sources import find_model
from realcomm.strategies import pieces, spread
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
NORM = 4 * 32  # bytes of the weights of a norm


def model_of(parallelism: Parallelism) -> str:
    layers = LAYERS if parallelism.pipeline * parallelism.virtual <= 2 else 6  # enough for eight stages
    return f"llama:layers={layers},width=32,heads=4,context=16,vocabulary=64,hidden=64"


@lru_cache
def profile_of(model: str, sample: tuple[int, ...] | None = None) -> ModelProfile:
    return profile_on_meta(find_model(model, sample))


MESHES = {  # trained, but not counted
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
ON_TOKENS = STRATEGIES | MESHES
SILENT = ("ddp", "fsdp", "tensor", "interleaved")
STEPS = 2
KEPT = ("fsdp x tensor", "ddp x interleaved")  # their weights are checked


def plan_of(parallelism: Parallelism, model: str = "", sample: tuple[int, ...] | None = None) -> StrategyPlan:
    model = model or model_of(parallelism)
    return plan_strategy(
        model, profile_of(model, sample), parallelism, SAMPLES, Recipe(optimizer="adamw"), sample
    )._replace(steps=0)


def on_digits(parallelism: Parallelism, model: str) -> StrategyPlan:
    digits = Training(None, batch_size=SAMPLES // parallelism.data, random_crop=2, flip=True)
    return plan_of(parallelism, model, digits.image_shape)._replace(images=digits)


def plans_in(folder: Path, names: Collection[str]) -> dict[str, StrategyPlan]:
    """Return the trainings to run, on random tokens and on digits, by name."""
    (folder / "network.py").write_text(NETWORK)
    plans = {name: plan_of(ON_TOKENS[name]) for name in names if name in ON_TOKENS}
    model = f"{folder / 'network.py'}:build"
    plans |= {name: on_digits(strategy, model) for name, strategy in OF_NETWORK.items() if name in names}
    return {name: plan._replace(steps=STEPS, checked=STEPS) for name, plan in plans.items()}


class Launched(NamedTuple):
    """The results of all ranks, in one launch, and the trainings' plans and weights."""

    counted: dict[str, list[CountedStrategy]]
    trained: dict[str, list[StrategyResult]]
    plans: dict[str, StrategyPlan]
    weights: dict[str, Path]


def launch_all(folder: Path, counted: Iterable[str], trained: Collection[str]) -> Launched:
    strategies, plans = {name: plan_of(STRATEGIES[name]) for name in counted}, plans_in(folder, trained)
    silent = [plan for name, plan in strategies.items() if name in SILENT]
    work = silent, [*strategies.values()], [*plans.values()], folder
    ranks = realcomm.launch(real_workers.count_and_train, RANKS, *work, threads=1, timeout=300)
    calls, trainings = zip(*ranks, strict=True)
    return Launched(
        dict(zip(strategies, zip(*calls, strict=True), strict=True)),
        dict(zip(plans, zip(*trainings, strict=True), strict=True)),
        plans,
        {name: folder / f"{place}.pt" for place, name in enumerate(plans)},
    )


@pytest.fixture(scope="module")
def launched(tmp_path_factory: pytest.TempPathFactory) -> Launched:
    trained = "zero_redundancy", "hsdp", *KEPT, "sequence x pipeline", "pieces", "perceptron by fsdp"
    return launch_all(tmp_path_factory.mktemp("trained"), STRATEGIES, trained)


def check_trained(launched: Launched, names: Iterable[str]) -> None:
    """Check the losses of all trainings, and the weights of some by the loss of one more step."""
    for name, results in launched.trained.items():
        losses = zip(*(result.losses for result in results if result.losses), strict=True)
        means = [sum(each) / len(each) for each in losses]
        assert results[0].alone is not None, name
        assert means == pytest.approx(results[0].alone.losses, rel=1e-5) and len({*means}) == STEPS, name
    for name in names:
        plan = launched.plans[name]._replace(steps=STEPS + 1, checked=STEPS + 1)
        model, pieces = build(plan), plan.parallelism.pieces
        model.load_state_dict(torch.load(launched.weights[name]))
        replicas = [[*batches_of(plan, number)][STEPS] for number in range(plan.parallelism.data)]
        losses = [
            float(spread.loss_of(model(part), aims_of_part).detach())
            for samples, aims in replicas
            for part, aims_of_part in zip(samples.chunk(pieces), aims.chunk(pieces), strict=True)
        ]
        assert sum(losses) / len(losses) == pytest.approx(train_alone(plan).losses[STEPS], rel=1e-5), name


def test_selected_strategies_match_a_single_rank_reference(launched: Launched) -> None:
    check_trained(launched, KEPT)


@pytest.mark.slow
def test_every_strategy_matches_a_single_rank_reference(tmp_path: Path) -> None:
    launched = launch_all(tmp_path, (), [*ON_TOKENS, *OF_NETWORK])
    check_trained(launched, launched.plans)


def job_of(name: str) -> Job:
    parallelism = STRATEGIES[name]
    return Job(profile_of(model_of(parallelism)), SAMPLES // parallelism.data, parallelism, optimizer="adamw").on(RANKS)


def stage_of(name: str, rank: int) -> int:
    return rank // (STRATEGIES[name].data * STRATEGIES[name].tensor)


def expected_calls(name: str, rank: int) -> Counter[tuple[str, float, int]]:
    calls = stage_calls(job_of(name))[stage_of(name, rank)]
    names = {"send_recv": "send"}
    return Counter(
        {(names.get(call.collective, call.collective), call.nbytes, call.group.size): call.times for call in calls}
    )


REGROUPED = ("zero2", "naive pairs")


def test_predicted_collective_calls_match_torch(launched: Launched) -> None:
    """With ``sequence``, torch's optimizer also sums the gradients of norms three times."""
    for name in STRATEGIES.keys() - REGROUPED:
        for rank, result in enumerate(launched.counted[name]):
            calls = Counter(map(tuple, result.calls))
            if name == "sequence":
                assert calls.pop(("all_reduce", NORM, 4)) == 3 * (2 * LAYERS + 1)
            assert calls == expected_calls(name, rank), name


def test_predicted_bytes_match_torch_when_torch_groups_calls(launched: Launched) -> None:
    """Without resharding, FSDP sends units instead of buckets. Gradients of pairs are one buffer."""
    for name in REGROUPED:
        for rank, result in enumerate(launched.counted[name]):
            sent, expected = Counter[tuple[str, int]](), Counter[tuple[str, int]]()
            for collective, nbytes, ranks in result.calls:
                sent[collective, ranks] += nbytes
            for (collective, nbytes, ranks), times in expected_calls(name, rank).items():
                expected[collective, ranks] += round(nbytes) * times
            assert sent == expected


def test_predicted_model_states_match_torch_on_each_rank(launched: Launched) -> None:
    for name, parallelism in STRATEGIES.items():
        for rank, result in enumerate(launched.counted[name]):
            states = stage_states(job_of(name))[stage_of(name, rank)]
            within = 0.01 if name == "zero_redundancy" else 1e-9  # it gives whole tensors to each rank
            assert result.held.optimizer == pytest.approx(states.optimizer, rel=within), name
            words = 4 * 64 * 32 * (1 - 1 / parallelism.tensor)  # torch leaves the gradient of divided words whole
            whole = words if parallelism.tensor > 1 and parallelism.data == 1 else 0
            assert result.held.gradients == states.gradients + whole, name
            if name != "zero2":  # whole parameters between forward and backward, which torch then divides
                assert result.held.parameters == states.parameters, name


def test_prediction_requires_that_the_model_fits_on_one_device(monkeypatch: pytest.MonkeyPatch) -> None:
    def time(plan: StrategyPlan) -> None:
        raise InputError("a batch does not fit") from torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(pieces, "_time_pieces", time)
    with pytest.raises(InputError, match="does not fit on one device, so its layers cannot be timed"):
        pieces.time_pieces(plan_of(Parallelism(data=2)))


def test_resnet_blocks_run_in_sequence_equal_the_model() -> None:
    model = find_model("resnet18", (3, 32, 32)).build().eval()
    images = torch.randn(2, 3, 32, 32)
    assert torch.equal(nn.Sequential(*named_blocks(model, "resnet18").values())(images), model(images))
