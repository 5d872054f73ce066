"""Find gradients that are summed and never divided, divided twice, reduced twice, or equal on all ranks."""

import os
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from virtual.matching.samples import (
    Values,
    are_equal,
    find_ratio,
    is_close,
    is_constant,
    is_plain,
    sample_gradient,
    take_sample,
)
from virtual.ranks.rank import Rank
from virtual.ranks.sites import CallSite, find_site, is_called_within
from virtual.ranks.watching import Watcher
from virtual.watching.training.bonds import Bond, Bonds
from virtual.watching.training.logs import OptimizerLogs
from virtual.watching.training.losses import LossScale, read_loss_scale

FEW = 8  # values that determine the factor of a parameter's gradient
SOME = 64  # values of a gradient that are compared between ranks
HALVES = 0.02  # relative rounding error of 16-bit sums
OF_FSDP = f"distributed{os.sep}fsdp{os.sep}"
DIVIDE = "divide by the number of ranks: grad /= dist.get_world_size(), ReduceOp.AVG, or divide the loss"
NEVER_DIVIDED = "gradients are summed over {ranks} ranks and never divided: each step is {ranks} times too large"
ONCE = "divide only once: DDP and ReduceOp.AVG already divide"
MEAN_LOSS = (
    'use reduction="mean", or divide the summed loss by the number of samples on all ranks and sum the gradients; '
    "with DDP, also multiply that loss by the number of ranks"
)
USUAL = ((2, 3, 4, 5, 8, 10), (2,))  # common divisors of means and of sums for other reasons
LEAVE = "remove this all_reduce, or do not wrap the module in DDP"
SAMPLER = "pass a DistributedSampler to the DataLoader, or give each rank its part of the data: data[rank::world_size]"
SEEDS = "give each rank its own data: a DistributedSampler, a slice that depends on the rank, or a different seed"


@dataclass
class Reduced:
    """An all_reduce that the program calls on a gradient, with samples of the gradient before and after."""

    call: Any
    before: Values
    after: Values | None = None


@dataclass
class Backward:
    """A rank's current backward pass: the scale of its loss, its gradients, and their reductions."""

    scale: LossScale | None = None  # None if the scale of the loss is unknown
    gradients: dict[int, Values] = field(default_factory=dict)  # by id of the parameter
    ready: dict[int, Values] = field(default_factory=dict)  # passed to hooks of the program, by id of the parameter
    reduced: dict[int, list[Reduced]] = field(default_factory=dict)  # by id of the parameter
    is_over: bool = False
    since_step: int = 0  # backwards since the last step
    has_messages: bool = False  # received after backward


class Gradients(Watcher):
    """Tracks how gradients are scaled, from the loss to the optimizer step."""

    def __init__(self, logs: OptimizerLogs, bonds: Bonds, strict: bool) -> None:
        super().__init__()
        self.logs, self.bonds, self.strict = logs, bonds, strict
        self._backwards: defaultdict[Rank, Backward] = defaultdict(Backward)
        self._drawn: set[Rank] = set()
        self._equal: dict[Any, int] = {}

    # -- events

    def batch_drawn(self, rank: Rank, loader: Any) -> None:
        self._drawn.add(rank)

    def backward_begins(self, rank: Rank, roots: tuple[Any, ...]) -> None:
        now = self._backwards[rank]
        now.scale, now.is_over = read_loss_scale(roots), False
        now.since_step += 1
        now.reduced.clear()

    def backward_ended(self, rank: Rank) -> None:
        now = self._backwards[rank]
        now.is_over = True
        if not self.logs.are_watched(rank):
            return
        parameters = [parameter for log in self.logs.of_rank(rank) for parameter in log.with_gradients]
        now.gradients = {id(parameter): sample_gradient(parameter, FEW) for parameter in parameters}

    def hooked(self, rank: Rank, bucket: Any, site: CallSite) -> None:
        if self.logs.are_watched(rank):
            for parameter, gradient in zip(bucket.parameters(), bucket.gradients(), strict=True):
                bond = self.bonds.of(rank, parameter)
                if bond is not None:
                    bond.hook = site
                    given = self.gather((bond, rank.backwards), rank, take_sample(gradient, FEW), len(bond.parameters))
                    bond.sum_given = bond.sum_given if given is None else np.sum([*given.values()], axis=0)

    def gradient_ready(self, rank: Rank, parameter: Any, gradient: Any) -> None:
        if self.logs.are_watched(rank) and is_plain(gradient):
            now = self._backwards[rank]
            now.ready.setdefault(id(parameter), take_sample(gradient, FEW))

    def posted(self, posted: Any) -> None:
        now = self._backwards[posted.rank]
        posted.is_early = now.since_step > 0 and not now.is_over
        is_of_shards = posted.way == "calls" and posted.exchange.collective == "reduce_scatter"
        posted.of_shards = is_of_shards and is_called_within(OF_FSDP)

    def complete(self, collective: Any) -> None:
        calls = collective.in_order()
        first = calls[0]
        if len(calls) < 2 or not first.tensors or not self.logs.are_watched(first.rank):
            return
        if all(call.of_shards for call in calls) and is_plain(first.tensors[0]):
            self._compare_given(collective, calls, is_of_torch=True)
        if first.exchange.collective != "all_reduce":
            return
        if not all(is_plain(call.tensors[0]) and call.tensors[0].is_floating_point() for call in calls):
            return
        is_of_torch = not first.is_programs and first.caller_name == "backward"
        for call in () if is_of_torch else calls:
            call.reduces = call.reduces or self.bonds.find_reduced(call.rank, call.tensors[0])
        if not is_of_torch and not all(call.reduces for call in calls):
            return
        self._compare_given(collective, calls, is_of_torch)
        for call in () if is_of_torch else calls:
            reduced = self._backwards[call.rank].reduced
            for parameter, sample in zip(call.reduces, _samples(call), strict=True):
                reduced.setdefault(id(parameter), []).append(Reduced(call, sample))

    def moved(self, collective: Any) -> None:
        for call in collective.calls.values():
            for parameter, sample in zip(call.reduces or (), _samples(call), strict=False):
                reduced = self._backwards[call.rank].reduced.get(id(parameter))
                if reduced and reduced[-1].call is call:
                    reduced[-1].after = sample

    def arrived(self, sender: Any, receiver: Any) -> None:
        for half in (sender, receiver):
            now = self._backwards[half.rank]
            now.has_messages = now.has_messages or now.is_over

    def stepping(self, rank: Rank, optimizer: Any) -> None:
        now, log = self._backwards[rank], self.logs.of(rank, optimizer)
        if log.is_watched(log.count):
            self._judge(rank, now, log.with_gradients)
            if log.count == 0 and now.has_messages and self._are_mixed(now, log.with_gradients):
                logs = self.gather(log.key, log, None, len(rank.job.ranks))
                if logs is not None:
                    self.bonds.tie_mixed([*logs])

    def stepped(self, rank: Rank, optimizer: Any) -> None:
        self._backwards[rank] = Backward()
        self._drawn.discard(rank)

    def _are_mixed(self, now: Backward, parameters: list[torch.Tensor]) -> bool:
        pairs = [(sample_gradient(parameter, FEW), now.gradients.get(id(parameter))) for parameter in parameters]
        return any(old is not None and old.any() and find_ratio(new, old) is None for new, old in pairs)

    # -- factors

    def _judge(self, rank: Rank, now: Backward, parameters: list[torch.Tensor]) -> None:
        if now.scale is None or now.since_step != 1 or not parameters:
            return
        bonds = [self.bonds.of(rank, parameter) for parameter in parameters]
        if any(bond is None for bond in bonds):
            return
        factors, site, ranks = self._factors(rank, now, parameters, [bond for bond in bonds if bond is not None])
        if not factors or ranks < 2:
            return
        for count in () if now.scale.is_bare_sum else now.scale.counts:
            if all(is_close(factor * count, 1.0) for factor, _ in factors) and site is not None:
                self._second_time(rank, "sum not averaged", NEVER_DIVIDED.format(ranks=ranks), site, DIVIDE)
                return
            if all(is_close(factor * count, 1 / ranks**2) for factor, _ in factors) and (
                any(all(is_close(late, once) for _, late in factors) for once in (1 / ranks, 1 / ranks**2))
                or ranks not in USUAL[count > 1]
            ):
                title = (
                    f"gradients are divided by the number of ranks ({ranks}) once too often: each step is "
                    f"{ranks} times too small"
                )
                self._second_time(rank, "averaged twice", title, find_site(), ONCE)
                return
        if now.scale.is_summed and now.scale.is_bare_sum and all(is_close(factor, 1 / ranks) for factor, _ in factors):
            self._tell_summed(rank, ranks, parameters)

    def _tell_summed(self, rank: Rank, ranks: int, parameters: list[torch.Tensor]) -> None:
        states = [log.optimizer.state.get(parameters[0], {}) for log in self.logs.of_rank(rank)]
        if self.strict or not any("exp_avg" in state for state in states):
            title = (
                f"gradients of a loss that is summed over samples are averaged over {ranks} ranks: each step is "
                f"{ranks} times smaller than on one device with the same samples"
            )
            self._second_time(rank, "summed loss", title, find_site(), MEAN_LOSS)

    def _second_time(self, rank: Rank, kind: str, title: str, site: CallSite, advice: str) -> None:
        """Report an error only when it occurs for the second time, because a single occurrence may be an experiment."""
        if self.count(rank, kind) == 2:
            self.find(kind, title, rank, site, advice)

    def _factors(
        self, rank: Rank, now: Backward, parameters: list[torch.Tensor], bonds: list[Bond]
    ) -> tuple[list[tuple[float, float]], CallSite | None, int]:
        """Return two factors for each parameter, the line of the reduction, and its number of ranks.

        The first factor is the ratio of the gradient in the step to the sum of all ranks' gradients, times the scale of
        the loss. The second factor is the part of this ratio that was applied after the reduction. Return ([], None, 0)
        if a factor is unknown.
        """
        assert now.scale is not None
        factors: list[tuple[float, float]] = []
        site, ranks = None, len(bonds[0].parameters)
        for parameter, bond in zip(parameters, bonds, strict=True):
            present = sample_gradient(parameter, FEW)
            reduced = now.reduced.get(id(parameter), []) if bond.hook is None else []  # the hook itself reduces
            computed = now.ready if any(reduction.call.is_early for reduction in reduced) else now.gradients
            before = computed.get(id(parameter))
            if before is None or len(bond.parameters) != ranks or len(reduced) > 1 or bool(reduced) == bond.by_ddp:
                return [], None, 0
            scale: float | None = 1.0 / ranks
            if bond.hook is not None and _is_sum(before, bond):
                site, scale = bond.hook, 1.0
            for reduction in reduced:
                site, scale = reduction.call.callers[0], find_ratio(reduction.before, before)
                scale = None if scale is None else scale / (ranks if reduction.call.likeness.op == "mean" else 1)
                before = before if reduction.after is None else reduction.after
            ratio = find_ratio(present, before)
            if ratio is not None and scale is not None:
                factors.append((ratio * scale * now.scale.factor, ratio))
            elif present.any():
                return [], None, 0
        return factors, site, ranks

    # -- gradients of several ranks

    def _compare_given(self, collective: Any, calls: list[Any], is_of_torch: bool) -> None:
        samples = [np.concatenate([take_sample(tensor, SOME) for tensor in call.exchange.reduced]) for call in calls]
        if is_constant(samples[0]) or not are_equal(samples):
            return
        bonds = [self.bonds.of(calls[0].rank, parameter) for parameter in calls[0].reduces or ()]
        if not is_of_torch and all(bond is not None and bond.by_ddp for bond in bonds):
            averaged = {rank for bond in bonds if bond is not None for rank in bond.parameters}
            among = [call for call in calls if call.rank in averaged]
            for call in among if len(among) > 1 else []:  # otherwise DDP averages over another dimension of the mesh
                title = "gradients are reduced again after DDP has averaged them"
                self.find("reduced twice", title, call.rank, call.site, LEAVE)
            return
        loaded = all(call.rank in self._drawn for call in calls)
        if not (self.strict or loaded):
            return
        key = (collective.group, calls[0].site)
        step = max((log.count for log in self.logs.of_rank(calls[0].rank)), default=0)
        first = self._equal.setdefault(key, step)
        if step > first:
            for call in calls:
                title = "{ranks} compute equal gradients before averaging: they all use the same batch"
                self.find("same batch", title, call.rank, call.site, SAMPLER if loaded else SEEDS)


def _samples(call: Any) -> list[Values]:
    sizes = [parameter.numel() for parameter in call.reduces or ()]
    return [take_sample(part, FEW) for part in call.tensors[0].detach().reshape(-1).split(sizes)] if sizes else []


def _is_sum(reduced: Values, bond: Bond) -> bool:
    ratio = None if bond.sum_given is None else find_ratio(reduced, bond.sum_given, HALVES)
    return ratio is not None and abs(ratio - 1.0) < HALVES
