"""Compare parameters, optimizer states and buffers that must be equal on ranks, and report the first difference."""

import gc
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch

from virtual.matching.samples import Values, are_equal, are_unlike, is_plain, take_sample
from virtual.ranks.finding import ProgramFinding, format_ranks, group_places
from virtual.ranks.rank import Rank, RankJob
from virtual.ranks.sites import CallSite, find_site
from virtual.ranks.watching import Watcher
from virtual.watching.training.bonds import Bond, Bonds
from virtual.watching.training.logs import OptimizerLog, OptimizerLogs, Step


def name_parameter(rank: Rank, parameter: torch.Tensor, wrapped: Iterable[Any]) -> str:
    """Return a parameter's longest name in the modules, or its shape if no module contains it.

    If no DDP module in ``wrapped`` contains the parameter, all modules of the process are searched, which is slow.
    """
    names = [name for ddp in wrapped for name, candidate in ddp.module.named_parameters() if candidate is parameter]
    if not names:
        modules = [candidate for candidate in gc.get_objects() if issubclass(type(candidate), torch.nn.Module)]
        names = [name for module in modules for name, candidate in module.named_parameters() if candidate is parameter]
    name: str = max(names, key=len, default=f"a parameter of shape {list(parameter.shape)}")
    return name


BEFORE = (
    "start with equal parameters: broadcast those of rank 0 after creating or loading them, use one seed, or wrap the "
    "module in DDP"
)
AFTER = (
    "average the gradient of every parameter on all ranks in every step; call the DDP module itself, not the module "
    "inside it, and run the last micro-batch outside of no_sync()"
)
BETWEEN = (
    "change parameters (load_state_dict, averaging of weights, clamp) identically on all ranks, or broadcast them "
    "afterwards"
)
LOADED = "load the optimizer state on all ranks, from the same checkpoint"
RATE = "use the same learning rate on all ranks: all_reduce the metric that is passed to the scheduler"
SKIPPED = "step on all ranks or on none: all_reduce the flag that decides, and do not step under `if rank == ...`"
ONE_SCALE = (
    "use the same init_scale, growth_factor, backoff_factor and growth_interval on all ranks, and load the scaler's "
    "state on all ranks or on none"
)
ONE_DECISION = (
    "average gradients before scaler.unscale_ and scaler.step, so that the scalers of all ranks see the same values; "
    "with shards, use ShardedGradScaler"
)
SUMMARIZE = "before evaluating, broadcast the buffers or reduce the statistics (DDP does so only in its own forward)"
BUFFERS = "keep broadcast_buffers=True, use SyncBatchNorm, or reduce the statistics before evaluating"


class Replicas(Watcher):
    """Compares the parameters, optimizer states and buffers of ranks at each step."""

    def __init__(self, logs: OptimizerLogs, bonds: Bonds, strict: bool) -> None:
        super().__init__()
        self.logs, self.bonds, self.strict = logs, bonds, strict
        self._known_peers: dict[
            OptimizerLog, tuple[int, list[OptimizerLog]]
        ] = {}  # with the number of bonds at that time
        self._silent: set[Any] = set()  # optimizers with a finding, by job and number
        self._called: dict[Any, dict[Rank, tuple[Any, dict[str, Values], CallSite]]] = {}  # modules under DDP
        self._evaluated: dict[Any, dict[Rank, tuple[Any, dict[str, Values], CallSite]]] = {}
        self._own_modules: dict[Rank, list[Any]] = {}  # modules whose gradients the program averages itself
        self._own_evaluated: dict[Any, dict[Rank, tuple[Any, dict[str, Values], CallSite]]] = {}
        self._states: dict[tuple[int, int], dict[Rank, tuple[OptimizerLog, frozenset[int], CallSite]]] = {}

    # -- parameters

    def stepping(self, rank: Rank, optimizer: Any) -> None:
        log = self.logs.of(rank, optimizer)
        key = (rank.job.number, log.number)
        if key in self._silent:
            return
        if log.count == 0:
            self._compare_states(key, log)
        peers = self._peers(log)
        if peers and all(log.count in peer.steps for peer in peers):
            rates = {peer: peer.steps[log.count].rates for peer in peers}
            scales = {peer: peer.steps[log.count].scale for peer in peers}
            if log.count == log.unseen:
                self.bonds.tie_forgotten(peers)
            are_same_step = len({peer.steps[log.count].backwards for peer in peers}) == 1
            have_unlike_scales = len(set(scales.values())) > 1 and None not in scales.values()
            if have_unlike_scales and not are_same_step:
                self._tell_skipped(key, peers, log.count, "their gradient scalers have different scales")
            elif have_unlike_scales:
                words_by_log = {peer: f"scale {scale:g}" for peer, scale in scales.items()}
                title = f"before step {log.count + 1}, gradient scalers have different scales on {_ranks(peers)}"
                self._tell(key, "optimizer state mismatch", title, words_by_log, ONE_SCALE)
            elif len(set(rates.values())) > 1:
                words_by_log = {
                    peer: f"learning rate {', '.join(f'{rate:g}' for rate in values)}" for peer, values in rates.items()
                }
                title = f"before step {log.count + 1}, learning rates differ between {_ranks(peers)}"
                self._tell(key, "optimizer state mismatch", title, words_by_log, RATE)
            elif log.is_sharded and not are_same_step:
                self._tell_skipped(key, peers, log.count, "their shards come from different steps")
            else:
                self._compare(key, peers, log.count, is_after=False)

    def stepped(self, rank: Rank, optimizer: Any) -> None:
        log = self.logs.of(rank, optimizer)
        step, key = log.count - 1, (rank.job.number, log.number)
        peers = self._peers(log)
        if key not in self._silent and peers and all(step in peer.steps and peer.steps[step].after for peer in peers):
            self._compare(key, peers, step, is_after=True)

    def _peers(self, log: OptimizerLog) -> list[OptimizerLog]:
        """Return the logs of ranks that share this log's parameters or hold their shards; empty if some are missing."""
        bonds, known = self._bonds(log), self._known_peers.get(log)
        if known is not None and known[0] == len(bonds):
            return known[1]
        ranks = {rank for bond in bonds for rank in bond.parameters} or log.sharing
        candidates = [
            candidate for rank in ranks for candidate in self.logs.of_rank(rank) if candidate.number == log.number
        ]
        if len(candidates) < len(ranks):
            return []
        peers = sorted(candidates, key=lambda peer: peer.rank.number)
        self._known_peers.update((peer, (len(bonds), peers)) for peer in peers)
        return peers

    def _compare(self, key: Any, peers: list[OptimizerLog], step: int, is_after: bool) -> None:
        if not is_after and step > 0:
            return
        first = peers[0]
        unlike = [bond for bond in self._bonds(first) if self._is_unlike(bond, peers, step, is_after)]
        if not unlike:
            return
        samples = {log: self._sample(unlike[0], log, step, is_after) for log in peers}
        name = self._name(unlike[0], first.rank)
        words_by_log = _show(name, {log: sample for log, sample in samples.items() if sample is not None})
        more = f" and {len(unlike) - 1} more of {len(first.parameters)} parameters" if len(unlike) > 1 else ""
        steps = {log.steps[step].backwards for log in peers}
        if is_after and len(steps) > 1:
            self._tell_skipped(key, peers, step, f"{name}{more} differs")
            return
        if is_after and any(self._was_changed(unlike[0], log, step) for log in peers):
            when = f"between steps {first.number_of(step - 1)} and {first.number_of(step)}"
            title = f"{when}, {name}{more} was changed outside of the optimizer, differently on {_ranks(peers)}"
            self._tell(key, "parameter mismatch", title, words_by_log, BETWEEN)
            return
        when = f"after step {first.number_of(step)}" if is_after else "before the first step"
        is_first = step == 0 and self._is_unlike(unlike[0], peers, step, False)
        if is_first and is_after:  # the first step of a HandOptimizer is not observed
            when = f"before step {first.number_of(step)}"
        title = f"{when}, {name}{more} differs between {_ranks(peers)}"
        advice = BEFORE if is_first else AFTER
        self._tell(key, "parameter mismatch", title, words_by_log, advice)

    def _bonds(self, log: OptimizerLog) -> list[Bond]:
        bonds = [self.bonds.of(log.rank, parameter) for parameter in log.parameters]
        return list(dict.fromkeys(bond for bond in bonds if bond is not None))

    def _name(self, bond: Bond, rank: Rank) -> str:
        return name_parameter(rank, bond.parameters[rank], self.bonds.modules.get(rank, ()))

    def _is_unlike(self, bond: Bond, peers: list[OptimizerLog], step: int, is_after: bool) -> bool:
        samples, scale = [], 0.0
        for log in peers:
            if log.rank in bond.parameters:
                value = self._sample(bond, log, step, is_after)
                if value is None:
                    return False
                samples.append(value)
                before = self._sample(bond, log, step, False)
                if is_after and before is not None and before.shape == value.shape and value.size:
                    scale = max(scale, float(np.abs(value - before).max()))
        return any(are_unlike(samples[0], other, scale) for other in samples[1:])

    def _was_changed(self, bond: Bond, log: OptimizerLog, step: int) -> bool:
        if step - 1 not in log.steps or log.rank not in bond.parameters:
            return False
        then, now = self._sample(bond, log, step - 1, True), self._sample(bond, log, step, False)
        return then is not None and now is not None and not are_equal([then, now])

    def _sample(self, bond: Bond, log: OptimizerLog, step: int, is_after: bool) -> Values | None:
        wanted = bond.parameters.get(log.rank)
        for place, parameter in enumerate(log.parameters):
            if parameter is wanted:
                record: Step = log.steps[step]
                return record.after[place] if is_after else record.before[place]
        return None

    # -- steps that only some ranks make

    def _tell_skipped(self, key: Any, peers: list[OptimizerLog], step: int, since: str) -> None:
        fewest = min(log.steps[step].backwards for log in peers)
        more = [log for log in peers if log.steps[step].backwards == fewest]
        others = [log for log in peers if log not in more]
        which = f"step {more[0].number_of(step)} after backward {fewest}"
        title = f"{_ranks(more)} made {which}, but {_ranks(others)} did not; since then, {since}"
        words_by_log = {log: f"stepped after backward {log.steps[step].backwards}" for log in more}
        self._tell(key, "skipped step", title, words_by_log, self._together(more))

    def _together(self, logs: list[OptimizerLog]) -> str:
        return ONE_DECISION if any(log.rank in self.logs.scales for log in logs) else SKIPPED

    def ended(self, job: RankJob) -> None:
        for (group, number, _), met in self._evaluated.items():
            if group.job is job and len(met) == len(group.ranks):
                self._compare_buffers(number, met, SUMMARIZE)
        for (ranks, number, _), met in self._own_evaluated.items():
            if next(iter(ranks)).job is job and len(met) == len(ranks):
                self._compare_buffers(("own", number), met, SUMMARIZE)
        logs = [log for rank in job.ranks for log in self.logs.of_rank(rank)]
        for log in sorted(logs, key=lambda entry: -entry.count):
            key = (job.number, log.number)
            counts_of = [entry.count for entry in logs if entry.number == log.number]
            if key in self._silent or (len(set(counts_of)) == 1 and len(counts_of) == len(job.ranks)):
                continue
            bonds = self._bonds(log)
            ranks = {rank for bond in bonds for rank in bond.parameters} or log.sharing
            counts = {rank: self._count(rank, log.number) for rank in ranks}
            if len(set(counts.values())) > 1 and (log.is_sharded or any(_differs_now(bond) for bond in bonds)):
                most = [entry for entry in logs if entry.number == log.number and entry.count == log.count]
                fewer = [rank.number for rank, count in counts.items() if count < log.count]
                differ = "their shards come from different steps" if log.is_sharded else "their parameters differ"
                title = f"{_ranks(most)} made {log.count} steps, but {format_ranks(fewer)} made fewer; {differ}"
                words_by_log = {entry: f"made {entry.count} steps" for entry in most}
                self._tell(key, "skipped step", title, words_by_log, self._together(most))

    def failed(self, job: RankJob) -> None:
        """Compare parameters of ranks with equal step counts, because a difference may have caused the exception."""
        logs = [log for rank in job.ranks for log in self.logs.of_rank(rank)]
        for number in {log.number for log in logs} - {number for _, number, *_ in self._silent}:
            mine = [log for log in logs if log.number == number]
            peers = self._peers(mine[0]) or mine
            if len({log.count for log in peers}) > 1:
                continue
            if any(isinstance(rank.error, AssertionError) for rank in job.ranks) and len(peers) == len(job.ranks):
                self.bonds.tie_mixed(peers)
            first = peers[0]
            unlike = [bond for bond in self._bonds(first) if _differs_now(bond)]
            if unlike:
                name = self._name(unlike[0], first.rank)
                words_by_log = _show(name, {log: take_sample(unlike[0].parameters[log.rank]) for log in peers})
                title = f"when the exception was raised, {name} differed between {_ranks(peers)}"
                advice = AFTER if first.count else BEFORE
                self._tell((job.number, number), "parameter mismatch", title, words_by_log, advice)

    def _count(self, rank: Rank, number: int) -> int:
        return max((log.count for log in self.logs.of_rank(rank) if log.number == number), default=0)

    # -- states of optimizers

    def _compare_states(self, key: Any, log: OptimizerLog) -> None:
        met = self._states.setdefault(key, {})
        state_places = frozenset(
            at for at, parameter in enumerate(log.parameters) if log.optimizer.state.get(parameter)
        )
        met[log.rank] = (log, state_places, find_site())
        peers = self._peers(log)
        if peers and all(peer.rank in met for peer in peers):
            states = {peer: met[peer.rank][1] for peer in peers}
            if any(states.values()) and not all(states.values()):
                words_by_log = {
                    peer: "has a state" if has_state else "has no state" for peer, has_state in states.items()
                }
                where = _ranks([peer for peer, has_state in states.items() if has_state])
                title = f"before the first step, the optimizer has a state only on {where}"
                self._tell(key, "optimizer state mismatch", title, words_by_log, LOADED)

    # -- buffers

    def forward_begins(self, rank: Rank, ddp: Any) -> None:
        """Compare a DDP module's buffers before an evaluation, if DDP does not broadcast them."""
        if not (ddp.training or ddp.will_sync_module_buffers()) and ddp in self.bonds.modules.get(rank, ()):
            self._meet_buffers(rank, ddp, self._called)

    def evaluating(self, rank: Rank, module: Any) -> None:
        """Save buffers that DDP does not broadcast, to compare them if the program does not call DDP itself."""
        wrapped = [ddp for ddp in self.bonds.modules.get(rank, ()) if module in (ddp, ddp.module)]
        for ddp in wrapped:
            if not ddp.broadcast_buffers:
                self._meet_buffers(rank, ddp, self._evaluated)
        if self.strict and not wrapped:
            self._meet_own_buffers(rank, module)

    def _meet_own_buffers(self, rank: Rank, module: Any) -> None:
        bonds = [self.bonds.of(rank, parameter) for parameter in module.parameters()]
        groups = {frozenset(bond.parameters) for bond in bonds if bond is not None and not bond.by_ddp}
        buffers = {
            name: take_sample(buffer)
            for name, buffer in module.named_buffers()
            if is_plain(buffer) and buffer.is_floating_point()
        }
        if None in bonds or len(groups) != 1 or not buffers:
            return
        modules = self._own_modules.setdefault(rank, [])
        if module not in modules:
            modules.append(module)
        which = sum(log.count for log in self.logs.of_rank(rank))
        met = self._own_evaluated.setdefault((*groups, modules.index(module), which), {})
        met.setdefault(rank, (module, buffers, find_site()))

    def _meet_buffers(self, rank: Rank, ddp: Any, meetings: dict[Any, Any]) -> None:
        group = getattr(ddp.process_group, "group", None)
        if group is None or len(group.ranks) < 2:
            return
        number = self.bonds.modules[rank].index(ddp)
        which = sum(log.count for log in self.logs.of_rank(rank))
        met = meetings.setdefault((group, number, which), {})
        if rank in met:
            return
        buffers = {name: take_sample(buffer) for name, buffer in ddp.module.named_buffers() if is_plain(buffer)}
        met[rank] = (ddp, buffers, find_site())
        if len(met) == len(group.ranks) and meetings is self._called:
            self._compare_buffers(number, met, BUFFERS)

    def _compare_buffers(
        self, number: Any, met: dict[Rank, tuple[Any, dict[str, Values], CallSite]], advice: str
    ) -> None:
        rank, (_, first, _) = next(iter(met.items()))
        key = (rank.job.number, "buffers", number)
        for name in first:
            by_rank = {rank: buffers[name] for rank, (_, buffers, _) in met.items() if name in buffers}
            values = list(by_rank.values())
            if key not in self._silent and any(are_unlike(values[0], other, 0.0) for other in values[1:]):
                self._silent.add(key)
                together = group_places(
                    (rank.number, words, met[rank][2]) for rank, words in _show(name, by_rank).items()
                )
                who = format_ranks([rank.number for rank in met])
                title = f"the buffer {name} differs between {who} during evaluation"
                self.tell(next(iter(met)).job, ProgramFinding("buffer mismatch", title, together, advice))

    def _tell(self, key: Any, kind: str, title: str, words_by_log: dict[OptimizerLog, str], advice: str) -> None:
        self._silent.add(key)
        places = group_places((log.rank.number, words, log.last) for log, words in words_by_log.items())
        self.tell(next(iter(words_by_log)).rank.job, ProgramFinding(kind, title, places, advice))


def _ranks(logs: Iterable[OptimizerLog]) -> str:
    return format_ranks([log.rank.number for log in logs])


def _show(name: str, samples: "dict[Any, Values]") -> dict[Any, str]:
    """Return, for each key, its sample's value at the first difference, as text.

    >>> _show("w", {0: np.array([1.0, 2.0]), 1: np.array([1.0, 2.5])})
    {0: 'first difference: w has 2', 1: 'first difference: w has 2.5'}
    """
    if len({sample.shape for sample in samples.values()}) > 1:
        return dict.fromkeys(samples, f"{name} has a different shape")
    differs = (np.stack([*samples.values()]) != next(iter(samples.values()))).any(axis=0)
    at = int(differs.argmax())
    return {owner: f"first difference: {name} has {sample[at]:.6g}" for owner, sample in samples.items()}


def _differs_now(bond: Bond) -> bool:
    samples = [take_sample(parameter) for parameter in bond.parameters.values() if isinstance(parameter, torch.Tensor)]
    return any(are_unlike(samples[0], other, 0.0) for other in samples[1:])
