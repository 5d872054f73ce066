"""Find ranks that train alone, and parameters without gradients, without an optimizer or unknown to DDP."""

from typing import Any
from weakref import WeakKeyDictionary

import torch

from virtual.diagnosis.exceptions import WRAP_LATER, find_unreduced, name_unreduced
from virtual.matching.samples import are_unlike, is_plain, take_sample
from virtual.ranks.rank import Rank, RankJob
from virtual.ranks.sites import CallSite, find_site
from virtual.ranks.watching import Watcher
from virtual.watching.training.bonds import Bonds
from virtual.watching.training.logs import OptimizerLogs

AVERAGE = "wrap the module in DistributedDataParallel, or average the gradients after each backward"
MAKE_LATER = "create the optimizer after fully_shard, FSDP or to_empty has replaced the parameters"
GIVE = "pass all parameters of the module to the optimizer, including those added later, or set requires_grad=False"
MOST_OF_METRICS = 8  # elements; a reduced loss or count is not larger
MOST_LEFT_OUT = 0.5  # share of a module's parameters; if more are in no optimizer, this is on purpose


class Idleness(Watcher):
    """Finds ranks that train alone, optimizers that step without gradients, and parameters in no optimizer."""

    def __init__(self, logs: OptimizerLogs, bonds: Bonds) -> None:
        super().__init__()
        self.logs, self.bonds = logs, bonds
        self._busy: set[int] = set()  # jobs that posted an operation
        self._shared: set[int] = set()  # jobs that posted more than metrics after the first step
        self._sampling: set[Rank] = set()  # ranks with a DistributedSampler
        self._stepped: set[Rank] = set()
        self._learnt: set[Rank] = set()  # ranks that ran backward since their last step

    def posted(self, posted: Any) -> None:
        self._busy.add(posted.rank.job.number)
        if posted.rank in self._stepped and sum(tensor.numel() for tensor in posted.tensors) > MOST_OF_METRICS:
            self._shared.add(posted.rank.job.number)

    def made_sampler(self, rank: Rank, sampler: Any) -> None:
        self._sampling.add(rank)

    def backward_ended(self, rank: Rank) -> None:
        self._learnt.add(rank)

    def stepping(self, rank: Rank, optimizer: Any) -> None:
        self._stepped.add(rank)
        log = self.logs.of(rank, optimizer)
        wanting = [parameter for parameter in log.parameters if parameter.requires_grad]
        if log.count == 0 and rank in self._learnt and wanting and all(parameter.grad is None for parameter in wanting):
            title = "the optimizer steps, but none of its parameters has a gradient, so nothing is learned"
            self.find("no gradients", title, rank, find_site(), MAKE_LATER)
        self._learnt.discard(rank)
        if log.count == 1:  # by now all optimizers have been made
            self._find_left_out(rank)

    def _find_left_out(self, rank: Rank) -> None:
        known = {id(parameter) for log in self.logs.of_rank(rank) for parameter in log.parameters}
        for ddp in self.bonds.modules.get(rank, ()):
            learning = [
                (name, id(parameter)) for name, parameter in ddp.module.named_parameters() if parameter.grad is not None
            ]
            without = [name for name, parameter in learning if parameter not in known]
            if without and len(without) < MOST_LEFT_OUT * len(learning):
                more = f" and {len(without) - 1} more" if len(without) > 1 else ""
                title = f"{without[0]}{more} of {len(learning)} parameters have gradients but belong to no optimizer"
                self.find("not in optimizer", title, rank, find_site(), GIVE)

    def ended(self, job: RankJob) -> None:
        communicate = self._shared if self._sampling.issuperset(job.ranks) else self._busy
        if job.number in communicate or len(job.ranks) < 2 or not all(rank.world_size for rank in job.ranks):
            return
        logs = [next((log for log in self.logs.of_rank(rank) if log.count > 1), None) for rank in job.ranks]
        stepped = [log for log in logs if log is not None]
        values = [[parameter for parameter in log.parameters if is_plain(parameter)] for log in stepped]
        if len(values) < len(job.ranks) or len({tuple(parameter.shape for parameter in mine) for mine in values}) > 1:
            return
        pairs = [(a, b) for other in values[1:] for a, b in zip(values[0], other, strict=True)]
        if any(are_unlike(take_sample(a), take_sample(b), 0.0) for a, b in pairs):
            habit = "communicate only metrics" if job.number in self._busy else "never communicate"
            title = f"{{ranks}} create a process group but {habit}: each trains its own model"
            places = [(rank, "step independently", stepped[0].last) for rank in job.ranks]
            self.compare("no communication", title, places, AVERAGE)


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
