"""Find the replicas of each parameter on several ranks, whose gradients must be reduced together."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.weak import WeakIdKeyDictionary

from virtual.matching.samples import Values, are_equal, is_constant, is_plain
from virtual.ranks.rank import Rank
from virtual.ranks.sites import CallSite
from virtual.ranks.watching import Watcher
from virtual.watching.training.logs import OptimizerLog, OptimizerLogs

MOST_FORGOTTEN = 0.5  # share of an optimizer's parameters that may be forgotten


@dataclass(eq=False)
class Bond:
    """The replicas of one parameter, one on each rank of a group. ``by_ddp`` means that DDP reduces their gradients."""

    parameters: dict[Rank, torch.Tensor]
    by_ddp: bool = False
    hook: CallSite | None = None  # line that registered the communication hook
    sum_given: Values | None = None  # sample of the sum of the hook's last inputs


class Bonds(Watcher):
    """Finds replicas: parameters in modules that DDP wraps, and parameters whose gradients the program reduces."""

    def __init__(self, logs: OptimizerLogs) -> None:
        super().__init__()
        self.logs = logs
        self._of: dict[Rank, WeakIdKeyDictionary] = {}
        self.modules: dict[Rank, list[Any]] = {}
        self._hooked: dict[Rank, torch.Tensor] = {}  # the parameter whose hook a rank is running
        self.missed = WeakIdKeyDictionary()  # parameters that DDP does not reduce

    def of(self, rank: Rank, parameter: torch.Tensor) -> Bond | None:
        mine = self._of.get(rank)
        return None if mine is None else mine.get(parameter)

    def wrapped(self, rank: Rank, ddp: Any) -> None:
        self.modules.setdefault(rank, []).append(ddp)
        group = getattr(ddp.process_group, "group", None)
        if group is None or len(group.ranks) < 2:
            return
        gathered = self.gather((group, self.count(rank, group)), rank, _managed(ddp), len(group.ranks)) or {}
        for parameters in zip(*gathered.values(), strict=False):
            self.tie(dict(zip(gathered, parameters, strict=True)), by_ddp=True)

    def gradient_ready(self, rank: Rank, parameter: Any, gradient: Any) -> None:
        self._hooked[rank] = parameter

    def gradient_handled(self, rank: Rank, parameter: Any) -> None:
        self._hooked.pop(rank, None)

    def posted(self, posted: Any) -> None:
        """Record the parameters whose gradients an all_reduce reduces, if a gradient hook calls it during backward."""
        if posted.rank in self._hooked and posted.is_programs and posted.way == "calls" and posted.tensors:
            is_backward = torch._C._current_graph_task_id() != -1
            if is_backward and posted.exchange.collective == "all_reduce":
                posted.reduces = self.find_reduced(posted.rank, posted.tensors[0])

    def complete(self, collective: Any) -> None:
        calls = collective.in_order()
        self._untie_local(collective)
        if calls[0].exchange.collective != "all_reduce" or not calls[0].is_programs or len(calls) < 2:
            return
        if not self.logs.are_watched(calls[0].rank):
            return
        if not all(is_plain(call.tensors[0]) and call.tensors[0].is_floating_point() for call in calls):
            return
        for call in calls:
            call.reduces = call.reduces or self.find_reduced(call.rank, call.tensors[0])
        if all(call.reduces for call in calls) and len({len(call.reduces) for call in calls}) == 1:
            for parameters in zip(*(call.reduces for call in calls), strict=True):
                if len({parameter.shape for parameter in parameters}) == 1:
                    self.tie({call.rank: parameter for call, parameter in zip(calls, parameters, strict=True)})

    def _untie_local(self, collective: Any) -> None:
        """Remove the bonds of DDP modules whose hook reduces over only some of the ranks, as in post-local SGD."""
        part = set(collective.group.ranks)
        for call in collective.calls.values():
            for ddp in self.modules.get(call.rank, ()) if call.caller_name == "backward" else ():
                if ddp._comm_hooks and part < set(ddp.process_group.group.ranks):
                    for parameter in _managed(ddp):
                        self._of.get(call.rank, WeakIdKeyDictionary()).pop(parameter, None)

    def find_reduced(self, rank: Rank, tensor: torch.Tensor) -> list[torch.Tensor]:
        """Return the parameters whose gradients are in ``tensor``: one parameter, all of an optimizer, or none."""
        hooked = self._hooked.get(rank)
        if hooked is not None and hooked.numel() == tensor.numel():
            return [hooked]
        for log in self.logs.of_rank(rank):
            parameters = log.with_gradients
            for parameter in parameters:
                if (
                    parameter.grad is not None
                    and parameter.grad.untyped_storage().data_ptr() == tensor.untyped_storage().data_ptr()
                ):
                    return [parameter]
            if len(parameters) > 1 and sum(parameter.numel() for parameter in parameters) == tensor.numel():
                return parameters
        return []

    def tie(self, parameters: dict[Rank, torch.Tensor], by_ddp: bool = False) -> Bond:
        """Return the bond between the parameters. Create the bond if it does not exist."""
        first_rank, first = next(iter(parameters.items()))
        known = self.of(first_rank, first)
        if known is not None:
            return known
        bond = Bond(parameters, by_ddp)
        for rank, parameter in parameters.items():
            self._of.setdefault(rank, WeakIdKeyDictionary())[parameter] = bond
        return bond

    def tie_forgotten(self, logs: Sequence[OptimizerLog]) -> None:
        """If at least half of an optimizer's parameters have bonds, bond others with equal initial values."""
        first = logs[0]
        bonds = [self.of(first.rank, parameter) for parameter in first.parameters]
        group = {log.rank for log in logs}
        tied = sum(bond is not None and bond.parameters.keys() == group for bond in bonds)
        if tied == len(bonds) or tied < MOST_FORGOTTEN * len(bonds):
            return
        rest = [place for place, bond in enumerate(bonds) if bond is None]
        first_samples = {place: first.first_sample(place) for place in rest}
        drawn = [place for place, sample in first_samples.items() if sample is not None and not is_constant(sample)]
        for place in drawn or rest:  # constants are equal even on unrelated ranks, so they come last
            self._tie_if_equal(logs, place, bool(drawn))

    def tie_mixed(self, logs: Sequence[OptimizerLog]) -> None:
        """Bond parameters that have equal initial values on all ranks."""
        for place, shape in enumerate(parameter.shape for parameter in logs[0].parameters):
            alike = [log.parameters[place] for log in logs if place < len(log.parameters)]
            if len(alike) == len(logs) and all(parameter.shape == shape for parameter in alike):
                self._tie_if_equal(logs, place)

    def _tie_if_equal(self, logs: Sequence[OptimizerLog], place: int, is_drawn: bool = True) -> None:
        """Bond a parameter if all ranks have equal initial values. If ``is_drawn`` is True, skip constant values."""
        if logs[0].parameters[place] in self.missed:
            return
        first_samples = [log.first_sample(place) for log in logs]
        samples = [sample for sample in first_samples if sample is not None]
        if len(samples) == len(logs) and are_equal(samples) and not (is_drawn and is_constant(samples[0])):
            self.tie({log.rank: log.parameters[place] for log in logs})


def _managed(ddp: Any) -> list[torch.Tensor]:
    ignored: set[str] = getattr(ddp, "parameters_to_ignore", set())
    return [
        parameter
        for name, parameter in ddp.module.named_parameters()
        if parameter.requires_grad and name not in ignored and is_plain(parameter)
    ]
