"""Detect the steps of programs without an optimizer: parameters that change between two backward passes."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from virtual.matching.samples import MOST, Values, is_plain, take_sample
from virtual.ranks.neutral import Neutral
from virtual.ranks.rank import Rank

MOST_NODES = 20_000  # autograd nodes to visit


class HandOptimizer:
    """Represents the updates of a program without an optimizer. The first update identifies its parameters.

    ``first_samples`` are samples of the parameters before the first update, which watchers cannot observe.
    """

    unseen_steps = 1

    def __init__(self, parameters: list[torch.Tensor], first_samples: list[Values]) -> None:
        self.param_groups: list[dict[str, Any]] = [{"params": parameters}]
        self.first_samples = first_samples
        self.state: dict[Any, Any] = {}

    def has_changed(self, samples: list[Values]) -> bool:
        """Return whether any parameter differs from its sample in ``samples``."""
        return any(map(_differ, self.param_groups[0]["params"], samples))

    def sample(self) -> list[Values]:
        """Return a sample of each parameter."""
        return [_sample(parameter) for parameter in self.param_groups[0]["params"]]


class HandSteps:
    """Reports the steps of ranks without an optimizer to the watchers."""

    def __init__(self, tell: Callable[..., None]) -> None:
        self.tell = tell
        self._optimizers: dict[Rank, HandOptimizer] = {}
        self._leaves: dict[Rank, list[tuple[torch.Tensor, Values]]] = {}  # leaves of the previous backward pass
        self._sharded: set[Rank] = set()  # ranks with parameters that torch frees after use
        self._begun: dict[Rank, list[Values]] = {}  # values at the backward pass that a step follows

    def begin(self, rank: Rank, roots: tuple[Any, ...]) -> None:
        """Observe the parameters before a backward pass."""
        self.end(rank)
        if rank in self._optimizers or rank in self._sharded:
            return
        with Neutral():
            leaves = find_leaves(roots)
            known = set(map(id, leaves))
            both = [(leaf, sample) for leaf, sample in self._leaves.get(rank, ()) if id(leaf) in known]
            if any(_differ(leaf, sample) for leaf, sample in both):
                optimizer = HandOptimizer([leaf for leaf, _ in both], [sample for _, sample in both])
                self._optimizers[rank] = optimizer
                self.tell("made_optimizer", optimizer)
            else:
                self._leaves[rank] = [(leaf, _sample(leaf)) for leaf in leaves if _is_there(leaf)]

    def follow(self, rank: Rank) -> None:
        """Report that a step begins, after a backward pass."""
        if not all(_is_there(leaf) for leaf, _ in self._leaves.get(rank, ())):
            self._sharded.add(rank)
            self._leaves.pop(rank)
        optimizer = self._optimizers.get(rank)
        if optimizer is not None and rank not in self._begun:
            with Neutral():
                self._begun[rank] = optimizer.sample()
            self.tell("stepping", optimizer)

    def end(self, rank: Rank) -> None:
        """Report the end of a step if the parameters have changed since it began."""
        optimizer, before = self._optimizers.get(rank), self._begun.get(rank)
        if optimizer is not None and before is not None and optimizer.has_changed(before):
            del self._begun[rank]
            self.tell("stepped", optimizer)


def find_leaves(roots: tuple[Any, ...]) -> list[torch.Tensor]:
    """Return the tensors whose gradients a backward pass from ``roots`` computes, in the same order on all ranks.

    >>> w = torch.ones(2, requires_grad=True)
    >>> [one is w for one in find_leaves(((w * 2).sum(),))]
    [True]
    """
    waiting = [root.grad_fn for root in roots if root.grad_fn is not None]
    seen, leaves = set(waiting), []
    while waiting and len(seen) < MOST_NODES:
        node = waiting.pop()
        variable = getattr(node, "variable", None)
        if variable is not None and is_plain(variable) and not getattr(variable, "_fsdp_flattened", False):
            leaves.append(variable)
        for function, _ in node.next_functions:
            if function is not None and function not in seen:
                seen.add(function)
                waiting.append(function)
    return leaves


def _is_there(tensor: torch.Tensor) -> bool:
    """Return whether a tensor has memory. FSDP frees the memory of parameters after use."""
    return tensor.untyped_storage().nbytes() >= tensor.nbytes


def _sample(tensor: torch.Tensor) -> Values:
    """Sample a copy of a tensor, because torch cannot free memory that numpy has accessed."""
    flat = tensor.detach().reshape(-1)
    return take_sample(flat[:: max(1, -(-flat.numel() // MOST))].clone())


def _differ(tensor: torch.Tensor, sample: Values) -> bool:
    return not np.array_equal(_sample(tensor), sample, equal_nan=True)
