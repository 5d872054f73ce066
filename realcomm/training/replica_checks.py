"""What goes wrong between ranks: replicas that differ, gradients of unlike size, unused parameters, unequal shares."""

import hashlib
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy

from collectives.errors import RunFailed
from realcomm.launching.group import own_device
from realcomm.training.gradient_sync import GradientSync, named_parameters
from realcomm.training.observing import Observed, Observer, StepRecord


class Difference(NamedTuple):
    """The first parameter that is not the same on all ranks, in the model's order."""

    name: str
    ranks: list[int]  # whose values are not rank 0's


class RankGradients(NamedTuple):
    """What one rank's own backward made, before any average."""

    norm: float  # of all gradients together
    unused: list[str]  # parameters that it made no gradient of


def find_difference(model: nn.Module) -> Difference | None:
    """Return the first parameter whose bits differ between ranks, or None. All ranks call this together."""
    named = list(model.named_parameters())
    own = [_hash(parameter) for _, parameter in named]
    by_rank = _gather(torch.tensor(own, dtype=torch.int64))
    for (name, _), hashes in zip(named, by_rank.T.tolist(), strict=True):
        if ranks := [rank for rank, one in enumerate(hashes) if one != hashes[0]]:
            return Difference(name, ranks)
    return None


class ReplicaChecks(Observer):
    """Compares the replicas every few steps, and ends a training whose ranks differ."""

    def __init__(self, every: int) -> None:
        self._every, self._alike_after = every, -1

    def step_done(self, running: Observed, record: StepRecord) -> None:
        """Raise RunFailed if a parameter differs: which, on which ranks, and since when."""
        together = running.done % running.training.sync_every == 0  # local SGD differs between two averages
        if running.done % self._every or not together:
            return
        found = find_difference(running.model)
        if found is not None:
            since = (
                f"they were alike after step {self._alike_after}" if self._alike_after >= 0 else "never alike before"
            )
            raise RunFailed(
                f"the replicas differ after step {record.step} ({since}): parameter {found.name} of "
                f"{_ranks(found.ranks)} is not rank 0's"
            )
        self._alike_after = record.step


def check_equal_steps(running: Observed) -> None:
    """Raise RunFailed if ranks have unlike numbers of batches: the one with fewer would leave the others waiting."""
    steps = [int(each) for each in _gather(torch.tensor([running.steps])).flatten().tolist()]
    if len(set(steps)) > 1:
        said = ", ".join(f"rank {rank} has {count}" for rank, count in enumerate(steps))
        raise RunFailed(f"the ranks have unlike numbers of batches: {said}; give all of them the same images")


def inspect_gradients(
    model: nn.Module, sync: GradientSync, images: torch.Tensor, labels: torch.Tensor
) -> list[RankGradients]:
    """Return what each rank's own backward of a batch makes; the model and its gradients' memory stay as they are.

    All ranks call this together; afterwards the gradients are zero.
    """
    made, named = set[nn.Parameter](), named_parameters(model)
    hooks = [parameter.register_post_accumulate_grad_hook(made.add) for _, parameter in named]
    with sync.accumulating():
        cross_entropy(model(images), labels).backward()
    for hook in hooks:
        hook.remove()
    gradients = [parameter.grad for _, parameter in named if parameter.grad is not None]
    norm = float(torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(each) for each in gradients])))
    for each in gradients:
        each.zero_()
    own = torch.tensor([norm, *(float(parameter not in made) for _, parameter in named)], dtype=torch.float64)
    return [
        RankGradients(row[0], [name for (name, _), unused in zip(named, row[1:], strict=True) if unused])
        for row in _gather(own).tolist()
    ]


def _hash(tensor: torch.Tensor) -> int:
    """Return 8 bytes of the SHA-256 of a tensor's bits."""
    content = tensor.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes()
    return int.from_bytes(hashlib.sha256(content).digest()[:8], "little", signed=True)


def _gather(own: torch.Tensor) -> torch.Tensor:
    """Return a row for each rank."""
    rows = [torch.empty_like(own, device=own_device()) for _ in range(dist.get_world_size())]
    dist.all_gather(rows, own.to(own_device()))
    return torch.stack(rows).cpu()


def _ranks(ranks: list[int]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"
