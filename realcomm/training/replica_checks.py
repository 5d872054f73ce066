"""Check that all ranks have equal replicas and equal numbers of batches."""

import hashlib
from typing import Any, NamedTuple

import torch
from torch import nn

from collectives.errors import RunFailed
from realcomm.execution.shared_clock import gather_over_ranks
from realcomm.training.observing import Observer, StepRecord
from realcomm.training.replica import to_bytes


class Difference(NamedTuple):
    """The first parameter, in model order, that differs between ranks."""

    name: str
    ranks: list[int]  # the ranks whose values differ from rank 0's


def find_difference(model: nn.Module) -> Difference | None:
    """Return the first parameter whose bits differ between ranks, or None if none differs. All ranks must call this."""
    named = list(model.named_parameters())
    hashes_of_rank = [_hash(parameter) for _, parameter in named]
    by_rank = gather_over_ranks(torch.tensor(hashes_of_rank, dtype=torch.int64))
    for (name, _), hashes in zip(named, by_rank.T.tolist(), strict=True):
        if ranks := [rank for rank, other in enumerate(hashes) if other != hashes[0]]:
            return Difference(name, ranks)
    return None


class ReplicaChecks(Observer):
    """Compares the replicas every few steps, and stops the run if they differ."""

    def __init__(self, every: int) -> None:
        self._every, self._alike_after = every, -1

    def step_done(self, running: Any, record: StepRecord) -> None:
        """Every few steps, raise RunFailed if a parameter differs between ranks, and name the ranks unlike rank 0."""
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


def check_equal_steps(running: Any) -> None:
    """Raise RunFailed if ranks have different numbers of batches. Otherwise some ranks would wait forever."""
    steps = [int(each) for each in gather_over_ranks(torch.tensor([running.steps])).flatten().tolist()]
    if len(set(steps)) > 1:
        listed = ", ".join(f"rank {rank} has {count}" for rank, count in enumerate(steps))
        raise RunFailed(f"ranks have different numbers of batches: {listed}; use the same images on all ranks")


def describe_non_finite(model: nn.Module, images: torch.Tensor) -> str:
    """Return a text that names the likely source of a non-finite loss: this rank's weights, its images, or neither.

    >>> describe_non_finite(nn.Linear(2, 2), torch.tensor([torch.nan]))
    'its images are not finite'
    """
    for name, tensor in model.state_dict().items():
        if tensor.is_floating_point() and not bool(tensor.isfinite().all()):
            return f"its {name} is not finite"
    return "its weights and images are finite" if bool(images.isfinite().all()) else "its images are not finite"


def _hash(tensor: torch.Tensor) -> int:
    summed = hashlib.sha256(to_bytes(tensor).cpu().numpy().tobytes())
    return int.from_bytes(summed.digest()[:8], "little", signed=True)
