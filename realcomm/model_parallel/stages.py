"""A model as blocks that follow each other, and one stage of it."""

from typing import NamedTuple

import torch
from torch import nn

from collectives.errors import InputError
from collectives.quoting import quote
from realcomm.launching.compiler_folder import import_compiler
from realcomm.profiling.model_sources import ModelSource, find_model


class StagePlan(NamedTuple):
    """A training on rows of stages: which blocks each stage has, and how much is trained.

    Rank r is stage r // replicas of replica r % replicas, as in the mesh of ``collectives.training.parallelism``.
    """

    model: str
    sample: tuple[int, ...] | None
    blocks: tuple[tuple[str, ...], ...]  # of each stage, by name
    replicas: int
    batch_size: int  # of a replica
    steps: int
    seed: int = 0
    learning_rate: float = 0.01

    @property
    def stages(self) -> int:
        """How many processes share a model."""
        return len(self.blocks)

    @property
    def world_size(self) -> int:
        """How many processes there are."""
        return self.stages * self.replicas

    @property
    def source(self) -> ModelSource:
        """The model."""
        return find_model(self.model, self.sample)


def named_blocks(model: nn.Module, name: str) -> dict[str, nn.Module]:
    """Return the blocks of a model that follow each other, by the names that a profile has.

    Raises InputError for a model whose forward is more than that.

    >>> list(named_blocks(nn.Sequential(nn.Linear(2, 2), nn.ReLU()), "mine"))
    ['0', '1']
    """
    if isinstance(model, nn.Sequential):
        return dict(model.named_children())
    import_compiler()
    from torchvision.models.resnet import ResNet  # slow to import

    if isinstance(model, ResNet):
        stem = ("conv1", "bn1", "relu", "maxpool")
        found = {each: getattr(model, each) for each in stem}
        for layer in ("layer1", "layer2", "layer3", "layer4"):
            found |= {f"{layer}.{number}": block for number, block in enumerate(getattr(model, layer))}
        return {**found, "avgpool": nn.Sequential(model.avgpool, nn.Flatten()), "fc": model.fc}
    raise InputError(
        f"model {quote(name)} is no list of blocks that follow each other; give one of torchvision's ResNets, or "
        "FILE.py:NAME that returns a torch.nn.Sequential"
    )


def build_stage(plan: StagePlan, stage: int) -> nn.Module:
    """Return a stage with the weights that the whole model has from the plan's seed."""
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(plan.seed)
        blocks = named_blocks(plan.source.build(), plan.model)
    return nn.Sequential(*(blocks[name] for name in plan.blocks[stage]))


def given_shape(plan: StagePlan, stage: int) -> tuple[int, ...]:
    """Return the shape of what a stage is given."""
    source = plan.source
    if stage == 0:
        return (plan.batch_size, *source.sample)
    with torch.device("meta"):
        blocks = named_blocks(source.build(), plan.model)
        before = nn.Sequential(*(blocks[name] for names in plan.blocks[:stage] for name in names))
        return tuple(before(source.batch(plan.batch_size, "meta")).shape)


def batch_of(plan: StagePlan, replica: int, step: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a replica's random images and labels of a step; each process makes the same ones."""
    made = torch.Generator().manual_seed(plan.seed + 1_000_003 * step + replica)
    images = torch.randn((plan.batch_size, *plan.source.sample), generator=made)
    return images, torch.randint(10, (plan.batch_size,), generator=made)
