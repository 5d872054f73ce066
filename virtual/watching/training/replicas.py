"""Compare parameters and optimizer states that must be equal on ranks, and report the first difference."""

import gc
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch

from virtual.matching.samples import Values, are_equal, are_unlike, take_sample
from virtual.ranks.finding import format_ranks
from virtual.ranks.rank import Rank, RankJob
from virtual.ranks.watching import Watcher
from virtual.watching.training.bonds import Bond, Bonds
from virtual.watching.training.logs import OptimizerLog, OptimizerLogs

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
Key = tuple[int, int]  # a job, and the number of an optimizer


class Replicas(Watcher):
    """Compares parameters and optimizer states between ranks at each step."""

    def __init__(self, logs: OptimizerLogs, bonds: Bonds) -> None:
        super().__init__()
        self.logs, self.bonds = logs, bonds
        self._known_peers: dict[OptimizerLog, tuple[int, list[OptimizerLog]]] = {}  # with the number of bonds then
        self._silent: set[Key] = set()  # optimizers with a finding
        self._states: dict[Key, dict[Rank, bool]] = {}  # whether each rank's optimizer has a state at first

    def stepping(self, rank: Rank, optimizer: Any) -> None:
        log = self.logs.of(rank, optimizer)
        if log.key in self._silent:
            return
        if log.count == 0:
            self._compare_states(log)
        peers = self._peers(log)
        if not peers or not all(log.count in peer.steps for peer in peers):
            return
        if log.count == 0:
            self.bonds.tie_forgotten(peers)
        steps = [peer.steps[log.count] for peer in peers]
        scales, rates = ([getattr(step, name) for step in steps] for name in ("scale", "rates"))
        are_same_step = len({step.backwards for step in steps}) == 1
        if len(set(scales)) > 1 and None not in scales:
            if are_same_step:
                title = f"before step {log.count + 1}, gradient scalers have different scales on {{ranks}}"
                texts = [f"scale {scale:g}" for scale in scales]
                self._tell("optimizer state mismatch", title, peers, texts, ONE_SCALE)
            else:
                self._tell_skipped(peers, log.count, "their gradient scalers have different scales")
        elif len(set(rates)) > 1:
            title = f"before step {log.count + 1}, learning rates differ between {{ranks}}"
            texts = [f"learning rate {', '.join(f'{rate:g}' for rate in values)}" for values in rates]
            self._tell("optimizer state mismatch", title, peers, texts, RATE)
        elif log.is_sharded and not are_same_step:
            self._tell_skipped(peers, log.count, "their shards come from different steps")
        elif log.count == 0:
            self._compare(peers, 0, is_after=False)

    def stepped(self, rank: Rank, optimizer: Any) -> None:
        log = self.logs.of(rank, optimizer)
        step, peers = log.count - 1, self._peers(log)
        if (
            log.key not in self._silent
            and peers
            and all(step in peer.steps and peer.steps[step].after for peer in peers)
        ):
            self._compare(peers, step, is_after=True)

    def _peers(self, log: OptimizerLog) -> list[OptimizerLog]:
        """Return the logs of the same optimizer on all ranks that share its parameters, or [] if a log is missing."""
        bonds, known = self._bonds(log), self._known_peers.get(log)
        if known is not None and known[0] == len(bonds):
            return known[1]
        ranks = self._ranks_of(log)
        candidates = [other for rank in ranks for other in self.logs.of_rank(rank) if other.number == log.number]
        if len(candidates) < len(ranks):
            return []
        peers = sorted(candidates, key=lambda peer: peer.rank.number)
        self._known_peers.update((peer, (len(bonds), peers)) for peer in peers)
        return peers

    def _ranks_of(self, log: OptimizerLog) -> set[Rank] | frozenset[Rank]:
        return {rank for bond in self._bonds(log) for rank in bond.parameters} or log.sharing

    def _bonds(self, log: OptimizerLog) -> list[Bond]:
        bonds = [self.bonds.of(log.rank, parameter) for parameter in log.parameters]
        return list(dict.fromkeys(bond for bond in bonds if bond is not None))

    def _compare(self, peers: list[OptimizerLog], step: int, is_after: bool) -> None:
        first = peers[0]
        unlike = [bond for bond in self._bonds(first) if _is_unlike(bond, peers, step, is_after)]
        if not unlike:
            return
        bond, number = unlike[0], step + 1
        name = self._name(bond, first.rank)
        samples = {log: sample for log in peers if (sample := _sample(bond, log, step, is_after)) is not None}
        members, texts = [*samples], show_difference(name, [*samples.values()])
        more = f" and {len(unlike) - 1} more of {len(first.parameters)} parameters" if len(unlike) > 1 else ""
        if is_after and len({log.steps[step].backwards for log in peers}) > 1:
            self._tell_skipped(peers, step, f"{name}{more} differs")
            return
        if is_after and any(_was_changed(bond, log, step) for log in peers):
            when = f"between steps {step} and {number}"
            title = f"{when}, {name}{more} was changed outside of the optimizer, differently on {{ranks}}"
            self._tell("parameter mismatch", title, members, texts, BETWEEN)
            return
        is_first = step == 0 and _is_unlike(bond, peers, step, False)
        when = f"after step {number}" if is_after else "before the first step"
        title = f"{when}, {name}{more} differs between {{ranks}}"
        self._tell("parameter mismatch", title, members, texts, BEFORE if is_first else AFTER)

    def _name(self, bond: Bond, rank: Rank) -> str:
        return name_parameter(bond.parameters[rank], self.bonds.modules.get(rank, ()))

    # -- steps that only some ranks make

    def _tell_skipped(self, peers: list[OptimizerLog], step: int, since: str) -> None:
        fewest = min(log.steps[step].backwards for log in peers)
        more = [log for log in peers if log.steps[step].backwards == fewest]
        others = format_ranks(log.rank.number for log in peers if log not in more)
        which = f"step {step + 1} after backward {fewest}"
        title = f"{{ranks}} made {which}, but {others} did not; since then, {since}"
        self._tell("skipped step", title, more, [f"stepped after backward {fewest}"] * len(more), self._together(more))

    def _together(self, logs: list[OptimizerLog]) -> str:
        return ONE_DECISION if any(log.rank in self.logs.scales for log in logs) else SKIPPED

    def ended(self, job: RankJob) -> None:
        logs = [log for rank in job.ranks for log in self.logs.of_rank(rank)]
        for log in sorted(logs, key=lambda entry: -entry.count):
            same = [entry for entry in logs if entry.number == log.number]
            if log.key in self._silent or (len({entry.count for entry in same}) == 1 and len(same) == len(job.ranks)):
                continue
            counts = dict.fromkeys(self._ranks_of(log), 0) | {entry.rank: entry.count for entry in same}
            fewer = [rank.number for rank in self._ranks_of(log) if counts[rank] < log.count]
            if fewer and (log.is_sharded or any(_differs_now(bond) for bond in self._bonds(log))):
                most = [entry for entry in same if entry.count == log.count]
                differ = "their shards come from different steps" if log.is_sharded else "their parameters differ"
                title = f"{{ranks}} made {log.count} steps, but {format_ranks(fewer)} made fewer; {differ}"
                self._tell("skipped step", title, most, [f"made {log.count} steps"] * len(most), self._together(most))

    def failed(self, job: RankJob) -> None:
        """After an exception, look for parameters that differ between ranks, which may have caused the exception."""
        logs = [log for rank in job.ranks for log in self.logs.of_rank(rank)]
        for key in {log.key for log in logs} - self._silent:
            mine = [log for log in logs if log.key == key]
            peers = self._peers(mine[0]) or mine
            if len({log.count for log in peers}) > 1:
                continue
            if any(isinstance(rank.error, AssertionError) for rank in job.ranks) and len(peers) == len(job.ranks):
                self.bonds.tie_mixed(peers)
            first = peers[0]
            bond = next((bond for bond in self._bonds(first) if _differs_now(bond)), None)
            if bond is not None:
                name = self._name(bond, first.rank)
                texts = show_difference(name, [take_sample(bond.parameters[log.rank]) for log in peers])
                title = f"when the exception was raised, {name} differed between {{ranks}}"
                self._tell("parameter mismatch", title, peers, texts, AFTER if first.count else BEFORE)

    # -- states of optimizers

    def _compare_states(self, log: OptimizerLog) -> None:
        met = self._states.setdefault(log.key, {})
        met[log.rank] = any(log.optimizer.state.get(parameter) for parameter in log.parameters)
        peers = self._peers(log)
        if peers and all(peer.rank in met for peer in peers):
            texts = ["has a state" if met[peer.rank] else "has no state" for peer in peers]
            if len(set(texts)) > 1:
                where = format_ranks(peer.rank.number for peer in peers if met[peer.rank])
                title = f"before the first step, the optimizer has a state only on {where}"
                self._tell("optimizer state mismatch", title, peers, texts, LOADED)

    def _tell(self, kind: str, title: str, logs: list[OptimizerLog], texts: list[str], advice: str) -> None:
        self._silent.add(logs[0].key)
        self.compare(kind, title, [(log.rank, text, log.last) for log, text in zip(logs, texts, strict=True)], advice)


def name_parameter(parameter: torch.Tensor, wrapped: Iterable[Any]) -> str:
    """Return the name of a parameter.

    The DDP modules in ``wrapped`` are searched first, then all modules. A parameter in none of them is named by its
    shape.
    """
    names = [name for ddp in wrapped for name, candidate in ddp.module.named_parameters() if candidate is parameter]
    if not names:
        modules = [candidate for candidate in gc.get_objects() if issubclass(type(candidate), torch.nn.Module)]
        names = [name for module in modules for name, candidate in module.named_parameters() if candidate is parameter]
    return max(names, key=len, default=f"a parameter of shape {list(parameter.shape)}")


def _sample(bond: Bond, log: OptimizerLog, step: int, is_after: bool) -> Values | None:
    record, wanted = log.steps[step], bond.parameters.get(log.rank)
    pairs = zip(log.parameters, record.after if is_after else record.before, strict=False)
    return next((sample for parameter, sample in pairs if parameter is wanted), None)


def _is_unlike(bond: Bond, peers: list[OptimizerLog], step: int, is_after: bool) -> bool:
    scale, members = 0.0, [log for log in peers if log.rank in bond.parameters]
    samples = [_sample(bond, log, step, is_after) for log in members]
    known = [sample for sample in samples if sample is not None]
    if not known or len(known) < len(samples):
        return False
    for log, sample in zip(members if is_after else (), known, strict=False):
        before = _sample(bond, log, step, False)
        if before is not None and before.shape == sample.shape and sample.size:
            scale = max(scale, float(np.abs(sample - before).max()))
    return any(are_unlike(known[0], other, scale) for other in known[1:])


def _was_changed(bond: Bond, log: OptimizerLog, step: int) -> bool:
    if step - 1 not in log.steps or log.rank not in bond.parameters:
        return False
    then, now = _sample(bond, log, step - 1, True), _sample(bond, log, step, False)
    return then is not None and now is not None and not are_equal([then, now])


def show_difference(name: str, samples: list[Values]) -> list[str]:
    """Return a text for each sample, with its value at the first position where the samples differ.

    >>> show_difference("w", [np.array([1.0, 2.0]), np.array([1.0, 2.5])])
    ['first difference: w has 2', 'first difference: w has 2.5']
    """
    if len({sample.shape for sample in samples}) > 1:
        return [f"{name} has a different shape"] * len(samples)
    at = int((np.stack(samples) != samples[0]).any(axis=0).argmax())
    return [f"first difference: {name} has {sample[at]:.6g}" for sample in samples]


def _differs_now(bond: Bond) -> bool:
    samples = [take_sample(parameter) for parameter in bond.parameters.values() if isinstance(parameter, torch.Tensor)]
    return any(are_unlike(samples[0], other, 0.0) for other in samples[1:])
