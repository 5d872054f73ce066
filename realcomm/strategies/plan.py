"""``StrategyPlan``: a training in a parallelism strategy as its ranks are told of it, and its batches."""

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from collectives.errors import InputError
from collectives.quoting import quote
from collectives.training.parallelism import Parallelism
from collectives.training.recipe import Recipe
from collectives.training.workload import Training
from realcomm.launching.group import own_device
from realcomm.profiling.model_sources import ModelSource, Transformer, find_model
from realcomm.training.datasets import Shard


class StrategyPlan(NamedTuple):
    """A model, and the strategy in which ranks train it; for all of them ``batch_size`` samples a step.

    ``stages`` are the names of the blocks of each stage of a pipeline, ``units`` of the modules whose parameters are
    gathered together. In the first ``checked`` steps one rank alone trains the same. ``images`` are those of a replica
    that learns from a data set; samples are random without.
    """

    model: str
    parallelism: Parallelism
    batch_size: int
    recipe: Recipe
    sample: tuple[int, ...] | None = None
    stages: tuple[tuple[str, ...], ...] = ()
    units: tuple[str, ...] = ()
    steps: int = 10
    checked: int = 3
    seed: int = 0
    images: Training | None = None

    @property
    def source(self) -> ModelSource:
        """The model."""
        return find_model(self.model, self.sample)

    @property
    def loads_ahead(self) -> bool:
        """Whether batches are loaded while the step before is computed."""
        return self.images is not None and self.images.num_workers > 0

    @property
    def samples_at_once(self) -> int:
        """Samples of which a device computes as much at a time as of a microbatch in this strategy, at least one."""
        parallelism = self.parallelism
        return max(1, self.batch_size // (parallelism.data * parallelism.pieces * parallelism.tensor))


def batch_of(plan: StrategyPlan, step: int, samples: int | None = None) -> tuple[Tensor, Tensor]:
    """Return the random samples of a step and what they are to be: the next words, or labels; on each rank the same.

    They are of all ranks together, unless it is said how many.
    """
    source, count = plan.source, samples or plan.batch_size
    made = torch.Generator().manual_seed(plan.seed + 1_000_003 * (step + 1))
    if source.vocabulary is not None:
        words = torch.randint(source.vocabulary, (count, *source.sample), generator=made)
        return words, words.roll(-1, dims=1)
    images = torch.randn((count, *source.sample), generator=made)
    return images, torch.randint(count_classes(plan.model, plan.sample), (count,), generator=made)


def batches_of(plan: StrategyPlan, place: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield what a replica has of the batch of each step, and what it is to be, on this rank's device."""
    if plan.images is not None:
        yield from Shard(plan.images, place, plan.parallelism.data, plan.steps)
        return
    for step in range(plan.steps):
        samples, targets = (each.chunk(plan.parallelism.data)[place] for each in batch_of(plan, step))
        yield samples.to(own_device()), targets.to(own_device())


@lru_cache
def count_classes(model: str, sample: tuple[int, ...] | None) -> int:
    """Return how many scores a model has for a sample. Raise InputError for one that returns no row of them."""
    with torch.device("meta"), torch.no_grad():
        source = find_model(model, sample)
        scores = source.build().eval()(source.batch(2, "meta"))
    if not isinstance(scores, Tensor) or scores.dim() != 2:
        raise InputError(f"model {quote(model)} returns no row of scores for each sample; give one that classifies")
    return scores.shape[1]


def check_divisible(plan: StrategyPlan) -> None:
    """Raise InputError for a strategy that torch's classes cannot give this model, and batches without equal pieces."""
    parallelism, source = plan.parallelism, plan.source
    if plan.batch_size % (parallelism.data * parallelism.pieces):
        raise InputError(
            f"batch_size is {plan.batch_size // parallelism.data} a device of the data axis, and it goes in "
            f"{parallelism.pieces} "
            f"equal microbatches; give a multiple of {parallelism.pieces}"
        )
    if parallelism.tensor == 1:
        return
    if source.shape is None or not plan.model.startswith("llama"):
        raise InputError(
            f"tensor is {parallelism.tensor}, and torch's styles divide the matrices of a llama: here, which model "
            f"{quote(plan.model)} is none of; give one, as llama:layers=2,width=64,heads=4,context=32,vocabulary=128"
        )
    shape = source.shape
    divided = {"heads": shape.heads, "kv_heads": shape.kv_heads, "hidden": shape.hidden, "vocabulary": shape.vocabulary}
    divided |= {"context": shape.context} if parallelism.sequence else {}
    for name, value in divided.items():
        if value % parallelism.tensor:
            raise InputError(
                f"{name} of model {quote(plan.model)} is {value}, which {parallelism.tensor} ranks of a tensor "
                "group cannot "
                f"divide equally; give a multiple of {parallelism.tensor}, or another tensor"
            )


def build(plan: StrategyPlan) -> torch.nn.Module:
    """Return the whole model with the weights that it has from the plan's seed, whatever random numbers came before."""
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(plan.seed)
        model = plan.source.build()
    if isinstance(model, Transformer) or not any(isinstance(each, torch.nn.Dropout) for each in model.modules()):
        return model.train()
    raise InputError(f"model {quote(plan.model)} has dropout, whose draws differ between ranks; give one without")
