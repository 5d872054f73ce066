"""Check whether ranks differ in their replicas, gradient norms, unused parameters, or numbers of batches."""

import hashlib
import logging
from math import isfinite
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy

from collectives.errors import RunFailed
from collectives.training.workload import Training
from realcomm.launching.group import own_device
from realcomm.training.gradient_sync import GradientSync, named_parameters
from realcomm.training.observing import Observer, RankGradients, StepRecord
from realcomm.training.replica import get_random_states, set_random_states, to_bytes

logger = logging.getLogger("ringlab")
UNLIKE = 10.0  # ratio of two ranks' gradient norms that is worth a warning


class Difference(NamedTuple):
    """A parameter that differs between ranks: the first one in model order."""

    name: str
    ranks: list[int]  # the ranks whose values differ from rank 0's


def find_difference(model: nn.Module) -> Difference | None:
    """Return the first parameter whose bits differ between ranks, or None. All ranks must call this together."""
    named = list(model.named_parameters())
    hashes_of_rank = [_hash(parameter) for _, parameter in named]
    by_rank = _gather(torch.tensor(hashes_of_rank, dtype=torch.int64))
    for (name, _), hashes in zip(named, by_rank.T.tolist(), strict=True):
        if ranks := [rank for rank, other in enumerate(hashes) if other != hashes[0]]:
            return Difference(name, ranks)
    return None


class ReplicaChecks(Observer):
    """Compares the replicas every few steps, and stops the run if they differ."""

    def __init__(self, every: int) -> None:
        self._every, self._alike_after = every, -1

    def step_done(self, running: Any, record: StepRecord) -> None:
        """Raise RunFailed if a parameter differs. It names the ranks and the last step at which they were equal."""
        together = running.done % running.training.sync_every == 0  # with local SGD, replicas differ between averages
        if running.done % self._every or not together:
            return
        difference = find_difference(running.model)
        if difference is not None:
            since = f"equal after step {self._alike_after}" if self._alike_after >= 0 else "never equal before"
            raise RunFailed(
                f"the replicas differ after step {record.step} ({since}): parameter {difference.name} of "
                f"rank{'s' * (len(difference.ranks) > 1)} {', '.join(map(str, difference.ranks))} differs from rank 0's"
            )
        self._alike_after = record.step


def make_checks(training: Training) -> list[Observer]:
    """Return the checks that a training's settings request."""
    checks: list[Observer] = [ReplicaChecks(training.check_every)] if training.check_every else []
    return [*checks, GradientChecks(training.inspect_every)] if training.inspect_every else checks


def check_equal_steps(running: Any) -> None:
    """Raise RunFailed if ranks have different numbers of batches, because some ranks would wait forever."""
    steps = [int(each) for each in _gather(torch.tensor([running.steps])).flatten().tolist()]
    if len(set(steps)) > 1:
        listed = ", ".join(f"rank {rank} has {count}" for rank, count in enumerate(steps))
        raise RunFailed(f"ranks have different numbers of batches: {listed}; use the same images on all ranks")


class GradientChecks(Observer):
    """Inspects each rank's own gradients every few steps, logs them, and warns about anomalies.

    This takes another forward and backward on the step's batch, whose time belongs to no phase.
    """

    def __init__(self, every: int) -> None:
        self._every = every

    def step_done(self, running: Any, record: StepRecord) -> None:
        if running.done % self._every:
            return
        inspected = running.inspected = inspect_gradients(running.model, running.sync, *running.batch)
        if running.rank == 0:
            text = f"training/{record.gradient_sync}: step {record.step}: {describe_gradients(inspected)}"
            logger.log(logging.WARNING if are_anomalous(inspected) else logging.INFO, text)


def describe_gradients(inspected: list[RankGradients]) -> str:
    """Describe each rank's gradient norm, and the parameters without a gradient.

    >>> describe_gradients([RankGradients(1.25, []), RankGradients(0.5, ["second.weight"])])
    'gradient norms by rank: 1.25, 0.5; rank 1 has none for second.weight'
    """
    norms = ", ".join(f"{each.norm:.4g}" for each in inspected)
    unused = [
        f"rank {rank} has none for {', '.join(each.unused)}" for rank, each in enumerate(inspected) if each.unused
    ]
    return "; ".join([f"gradient norms by rank: {norms}", *unused])


def are_anomalous(inspected: list[RankGradients]) -> bool:
    """Return whether a parameter lacks a gradient, a norm is not finite, or norms differ by more than a factor of 10.

    >>> are_anomalous([RankGradients(1.25, []), RankGradients(0.5, [])])
    False
    """
    norms = [each.norm for each in inspected]
    is_even = all(map(isfinite, norms)) and max(norms) <= UNLIKE * min(norms)
    return not is_even or any(each.unused for each in inspected)


def inspect_gradients(
    model: nn.Module, sync: GradientSync, images: torch.Tensor, labels: torch.Tensor
) -> list[RankGradients]:
    """Run backward on a batch, and return the gradient norm and the unused parameters of each rank's own gradients.

    All ranks must call this together. The model, its buffers and the random states do not change. The gradients are
    zero afterwards.
    """
    with_gradient, named = set[nn.Parameter](), named_parameters(model)
    buffers, random = [(each, each.clone()) for each in model.buffers()], get_random_states()
    _clear_gradients(model)
    hooks = [parameter.register_post_accumulate_grad_hook(with_gradient.add) for _, parameter in named]
    with sync.accumulating():
        cross_entropy(model(images), labels).backward()
    for hook in hooks:
        hook.remove()
    gradients = [parameter.grad for _, parameter in named if parameter.grad is not None]
    norm = float(torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(each) for each in gradients])))
    _clear_gradients(model)
    with torch.no_grad():
        for each, saved in buffers:
            each.copy_(saved)
    set_random_states(random)
    values = torch.tensor(
        [norm, *(float(parameter not in with_gradient) for _, parameter in named)], dtype=torch.float64
    )
    return [
        RankGradients(row[0], [name for (name, _), unused in zip(named, row[1:], strict=True) if unused])
        for row in _gather(values).tolist()
    ]


def describe_non_finite(model: nn.Module, images: torch.Tensor) -> str:
    """Return text on the likely source of a non-finite loss: this rank's weights, its images, or neither.

    >>> describe_non_finite(nn.Linear(2, 2), torch.tensor([torch.nan]))
    'its images are not finite'
    """
    for name, tensor in model.state_dict().items():
        if tensor.is_floating_point() and not bool(tensor.isfinite().all()):
            return f"its {name} is not finite"
    return "its weights and images are finite" if bool(images.isfinite().all()) else "its images are not finite"


def _clear_gradients(model: nn.Module) -> None:
    for _, parameter in named_parameters(model):
        if parameter.grad is not None:
            parameter.grad.zero_()


def _hash(tensor: torch.Tensor) -> int:
    """Return 8 bytes of the SHA-256 of a tensor's bits."""
    summed = hashlib.sha256(to_bytes(tensor).cpu().numpy().tobytes())
    return int.from_bytes(summed.digest()[:8], "little", signed=True)


def _gather(row: torch.Tensor) -> torch.Tensor:
    rows = [torch.empty_like(row, device=own_device()) for _ in range(dist.get_world_size())]
    dist.all_gather(rows, row.to(own_device()))
    return torch.stack(rows).cpu()
