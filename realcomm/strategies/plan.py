"""Describe a training run with a parallelism strategy for its ranks, and generate its batches."""

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
    """A model and the strategy to train it with. ``batch_size`` is the number of samples of all ranks in a step.

    ``stages`` lists the names of each pipeline stage's blocks. ``units`` lists the modules whose parameters are
    gathered together. For comparison, one rank alone also runs ``checked`` steps on the same samples. ``images``
    describes the data set to load. If it is None, samples are random.
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
        return find_model(self.model, self.sample)

    @property
    def loads_ahead(self) -> bool:
        """Whether worker processes load the next batches during a step."""
        return self.images is not None and self.images.num_workers > 0

    @property
    def samples_at_once(self) -> int:
        """The micro-batch size divided by the tensor-parallel size, rounded down, but at least 1."""
        parallelism = self.parallelism
        return max(1, self.batch_size // (parallelism.data * parallelism.pieces * parallelism.tensor))


def batch_of(plan: StrategyPlan, step: int) -> tuple[Tensor, Tensor]:
    """Return the random samples of all ranks in a step, and their targets. The result is the same on each rank.

    Targets are the next tokens for a transformer, and labels for other models.
    """
    source, count = plan.source, plan.batch_size
    generator = torch.Generator().manual_seed(plan.seed + 1_000_003 * (step + 1))
    if source.vocabulary is not None:
        words = torch.randint(source.vocabulary, (count, *source.sample), generator=generator)
        return words, words.roll(-1, dims=1)
    images = torch.randn((count, *source.sample), generator=generator)
    return images, torch.randint(count_classes(plan.model, plan.sample), (count,), generator=generator)


def batches_of(plan: StrategyPlan, place: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield each step's samples and targets of replica number ``place``, on this rank's device."""
    if plan.images is not None:
        yield from Shard(plan.images, place, plan.parallelism.data, plan.steps)
        return
    for step in range(plan.steps):
        samples, targets = (each.chunk(plan.parallelism.data)[place] for each in batch_of(plan, step))
        yield samples.to(own_device()), targets.to(own_device())


@lru_cache
def count_classes(model: str, sample: tuple[int, ...] | None) -> int:
    """Return the number of classes of a classifier. Raise InputError if the model does not return [batch, classes]."""
    with torch.device("meta"), torch.no_grad():
        source = find_model(model, sample)
        scores = source.build().eval()(source.batch(2, "meta"))
    if not isinstance(scores, Tensor) or scores.dim() != 2:
        raise InputError(f"model {quote(model)} must return scores of shape [batch, classes]; use a classifier")
    return scores.shape[1]


def check_divisible(plan: StrategyPlan) -> None:
    """Check that micro-batches have equal sizes and that tensor parallelism can divide the model equally.

    Raise InputError otherwise.
    """
    parallelism, source = plan.parallelism, plan.source
    if plan.batch_size % (parallelism.data * parallelism.pieces):
        raise InputError(
            f"batch_size per data-parallel rank must be a multiple of the {parallelism.pieces} micro-batches, "
            f"not {plan.batch_size // parallelism.data}"
        )
    if parallelism.tensor == 1:
        return
    if source.shape is None or not plan.model.startswith("llama"):
        raise InputError(
            f"tensor = {parallelism.tensor} requires a model that begins with llama:, not {quote(plan.model)}; use for "
            "example llama:layers=2,width=64,heads=4,context=32,vocabulary=128"
        )
    shape = source.shape
    divided = {"heads": shape.heads, "kv_heads": shape.kv_heads, "hidden": shape.hidden, "vocabulary": shape.vocabulary}
    divided |= {"context": shape.context} if parallelism.sequence else {}
    for name, value in divided.items():
        if value % parallelism.tensor:
            raise InputError(
                f"{name} of model {quote(plan.model)} ({value}) must be a multiple of tensor ({parallelism.tensor}); "
                f"change {name}, or tensor"
            )


def build(plan: StrategyPlan) -> torch.nn.Module:
    """Return the whole model with weights from the plan's seed. The caller's random state is neither used nor changed.

    Raise InputError for a model with dropout.
    """
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(plan.seed)
        model = plan.source.build()
    if isinstance(model, Transformer) or not any(isinstance(each, torch.nn.Dropout) for each in model.modules()):
        return model.train()
    raise InputError(
        f"model {quote(plan.model)} has dropout, which is random on each rank; use a model without dropout"
    )
