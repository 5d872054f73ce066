"""Find misuse of DistributedDataParallel: parameters and buffers that it does not synchronize."""

from collections.abc import Iterable
from typing import Any
from weakref import WeakKeyDictionary

import torch

from virtual.diagnosis.exceptions import WRAP_LATER, find_unreduced, name_unreduced
from virtual.matching.samples import Values, are_unlike, is_plain, take_sample
from virtual.ranks.rank import Rank, RankJob
from virtual.ranks.sites import CallSite, find_site
from virtual.ranks.watching import Watcher
from virtual.watching.training.bonds import Bonds
from virtual.watching.training.logs import OptimizerLogs
from virtual.watching.training.replicas import show_difference

WATCHED_FORWARDS = 8  # forwards that are checked per module


class UnreducedParameters(Watcher):
    """Finds parameters that DDP does not reduce, because they were added or became trainable after DDP wrapped them."""

    def __init__(self, bonds: Bonds) -> None:
        super().__init__()
        self.bonds = bonds
        self._known: WeakKeyDictionary[Any, list[torch.Tensor]] = WeakKeyDictionary()
        self._unreduced: dict[Rank, tuple[Any, list[str], CallSite]] = {}

    def wrapped(self, rank: Rank, ddp: Any) -> None:
        self._known[ddp] = [parameter for parameter in ddp.module.parameters() if parameter.requires_grad]

    def forward_begins(self, rank: Rank, ddp: Any) -> None:
        if ddp in self._known and self.count(id(ddp)) <= WATCHED_FORWARDS and ddp.training:
            names = find_unreduced(ddp, self._known[ddp])
            if names and rank not in self._unreduced:
                self._unreduced[rank] = (ddp, names, find_site())
                parameters = dict(ddp.module.named_parameters())
                self.bonds.missed.update({parameters[name]: None for name in names})

    def ended(self, job: RankJob) -> None:
        for rank in job.ranks:
            ddp, names, site = self._unreduced.get(rank, (None, [], None))
            parameters = {} if ddp is None else dict(ddp.module.named_parameters())
            names = [name for name in names if name in parameters and self.bonds.of(rank, parameters[name]) is None]
            if names:
                title = f"DDP does not average {name_unreduced(names)}, which changed after the module was wrapped"
                self.find("not in DDP", title, rank, site, WRAP_LATER)


BUFFERS = "keep broadcast_buffers=True, use SyncBatchNorm, or reduce the statistics before evaluating"


class Buffers(Watcher):
    """Compares the buffers of evaluated modules between ranks, if DDP does not broadcast the buffers."""

    def __init__(self, logs: OptimizerLogs, bonds: Bonds) -> None:
        super().__init__()
        self.logs, self.bonds = logs, bonds
        self._silent: set[Any] = set()  # modules with a finding

    def forward_begins(self, rank: Rank, ddp: Any) -> None:
        modules = self.bonds.modules.get(rank, [])
        group = getattr(ddp.process_group, "group", None)
        if group is None or ddp.training or ddp.will_sync_module_buffers() or ddp not in modules:
            return
        key = (frozenset(group.ranks), modules.index(ddp))
        value = _read_buffers(ddp.module), find_site()
        steps = sum(log.count for log in self.logs.of_rank(rank))
        met = self.gather((rank.job, key, steps), rank, value, len(group.ranks))
        if met is not None:
            self._compare((rank.job, key), met)

    def _compare(self, key: Any, met: dict[Rank, tuple[dict[str, Values], CallSite]]) -> None:
        for name in next(iter(met.values()))[0]:
            by_rank = {rank: buffers[name] for rank, (buffers, _) in met.items() if name in buffers}
            values = list(by_rank.values())
            if key not in self._silent and any(are_unlike(values[0], other, 0.0) for other in values[1:]):
                self._silent.add(key)
                texts = zip(by_rank, show_difference(name, values), strict=True)
                title = f"the buffer {name} differs between {{ranks}} during evaluation"
                places: Iterable[Any] = ((rank, text, met[rank][1]) for rank, text in texts)
                self.compare("buffer mismatch", title, places, BUFFERS)


def _read_buffers(module: Any) -> dict[str, Values]:
    buffers = module.named_buffers()
    return {name: take_sample(buffer) for name, buffer in buffers if is_plain(buffer)}
