"""Observe a program's calls of torch and Python, and notify the watchers."""

import builtins
import io
import os
import sys
import weakref
from collections import OrderedDict
from collections.abc import Callable
from functools import partial, wraps
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import device_mesh
from torch.distributed import distributed_c10d as c10d
from torch.nn.parallel import DistributedDataParallel
from torch.optim import optimizer as optimizers
from torch.utils.data import DistributedSampler
from torch.utils.data import dataloader as loading

from virtual.matching.samples import is_plain
from virtual.process.replaced import Replaced
from virtual.ranks.neutral import Neutral
from virtual.ranks.rank import Rank
from virtual.ranks.sites import find_site, is_asked_by_program, is_called_within, is_users
from virtual.ranks.watching import nobody
from virtual.ranks.world import VirtualWorld
from virtual.watching.training.hand_steps import HandSteps

HOOK = 1 << 40  # key of our optimizer hooks; torch numbers its own from 0
DEPTH = "optimizers that step"
OPTIMIZES = "has an optimizer"
TENSOR_PARALLEL = f"tensor{os.sep}parallel{os.sep}"

Act = Callable[..., object]


class ProgramObserver:
    """Notifies the watchers of each rank's calls. Its own work does not count as compute."""

    def __init__(self, world: VirtualWorld) -> None:
        self.world = world
        self.hand_steps = HandSteps(self.tell)
        self._listening: list[Act] = []

    def install(self, replaced: Replaced) -> None:
        """Observe the program until ``replaced`` is restored."""
        observe = partial(self._observe, replaced)
        ddp, sampler = DistributedDataParallel, DistributedSampler
        observe(loading._BaseDataLoaderIter, "__next__", before=self._draw_batch)
        observe(sampler, "__iter__", before="sampling")
        observe(sampler, "set_epoch", before="setting_epoch")
        observe(sampler, "__init__", after="made_sampler")
        observe(ddp, "__init__", after="wrapped")
        observe(ddp, "forward", before="forward_begins")
        observe(torch.autograd, "backward", before=self._begin_backward, after=self._end_backward)
        for owner in (torch.nn.utils, torch.nn.utils.clip_grad):
            observe(owner, "clip_grad_norm_", before=lambda *arguments, **named: self.tell("clipping"))
        observe(torch.amp.GradScaler, "step", before="scaler_steps")
        observe(optimizers.Optimizer, "__init__", after=self._note_optimizer)
        observe(torch.nn.Module, "eval", before="evaluating")
        observe(device_mesh.DeviceMesh, "__init__", before=self._once(self._listen_to_tensors, replaced))
        if self.world.watch.dropping is not nobody:  # torch.jit.script cannot compile the replacement
            observe(torch.nn.functional, "dropout", before=self._drop)
        replaced.put(ddp, "register_comm_hook", self._hooking(ddp.register_comm_hook))
        for name in ("register_hook", "register_post_accumulate_grad_hook"):
            replaced.put(torch.Tensor, name, self._hooking_gradients(getattr(torch.Tensor, name)))
        for name in ("recv", "irecv") if self.world.watch.adding is not nobody else ():
            observe(c10d, name, before=self._once(self._listen_to_sums, replaced))
            replaced.put(dist, name, getattr(c10d, name))  # P2POp compares functions by identity
        self._install_steps(replaced)
        self._install_groups(replaced)
        self._install_files(replaced)

    def tell(self, event: str, *arguments: Any) -> None:
        """Notify the watchers of the calling rank's event. Ignore threads that do not belong to a rank."""
        rank, pass_on = self.world.me(), getattr(self.world.watch, event)
        if pass_on is not nobody and rank is not None and rank.number >= 0 and rank.job.finding is None:
            self.world.computing.charge(rank)
            with Neutral():
                pass_on(rank, *arguments)
            self.world.computing.forget(rank)

    def _observe(
        self, replaced: Replaced, owner: Any, name: str, before: Act | str | None = None, after: Act | str | None = None
    ) -> None:
        """Wrap a function: ``before`` gets its arguments, ``after`` also its result. A string is an event to report."""
        function = getattr(owner, name)
        first = (lambda subject, *_, **__: self.tell(before, subject)) if isinstance(before, str) else before
        last = (lambda _, subject, *__, **___: self.tell(after, subject)) if isinstance(after, str) else after

        @wraps(function)
        def observed(*arguments: Any, **named: Any) -> Any:
            if first is not None:
                first(*arguments, **named)
            result = function(*arguments, **named)
            if last is not None:
                last(result, *arguments, **named)
            return result

        replaced.put(owner, name, observed)

    def _once(self, listen: Callable[[Replaced], None], replaced: Replaced) -> Act:
        """Return a function that calls ``listen`` the first time, so that programs only pay for it if they need it."""

        def start(*arguments: Any, **named: Any) -> None:
            if listen not in self._listening:
                self._listening.append(listen)
                listen(replaced)

        return start

    # -- training

    def _begin_backward(self, tensors: Any, *arguments: Any, **named: Any) -> None:
        roots = (tensors,) if isinstance(tensors, torch.Tensor) else tuple(tensors)
        rank = self._without_optimizer()
        if rank is not None:
            self.hand_steps.begin(rank, roots)
        self.tell("backward_begins", roots)

    def _end_backward(self, *arguments: Any, **named: Any) -> None:
        self.tell("backward_ended")
        rank = self._without_optimizer()
        if rank is not None:
            self.hand_steps.follow(rank)

    def _without_optimizer(self) -> Rank | None:
        rank = self.world.me()
        is_watched = self.world.watch.stepping is not nobody
        return rank if is_watched and rank is not None and rank.number >= 0 and OPTIMIZES not in rank.extra else None

    def _draw_batch(self, *arguments: Any, **named: Any) -> None:
        rank = self._without_optimizer()
        if rank is not None:
            self.hand_steps.end(rank)
        self.tell("batch_drawn")

    def _note_optimizer(self, _: None, optimizer: Any, *arguments: Any, **named: Any) -> None:
        rank = self.world.me()
        if rank is not None:
            rank.extra[OPTIMIZES] = True
        self.tell("made_optimizer", optimizer)

    def _drop(self, tensor: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> None:
        if training and p > 0:
            self.tell("dropping")

    def _hooking(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def register(ddp: Any, state: Any, hook: Callable[..., Any]) -> Any:
            site = find_site()

            @wraps(hook)
            def hooked(state: Any, bucket: Any) -> Any:
                self.tell("hooked", bucket, site)
                return hook(state, bucket)

            return function(ddp, state, hooked)

        return register

    def _hooking_gradients(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def register(tensor: Any, hook: Callable[..., Any]) -> Any:
            if not (tensor.is_leaf and is_plain(tensor) and is_users(sys._getframe(1).f_code.co_filename)):
                return function(tensor, hook)
            parameter = weakref.ref(tensor)

            @wraps(hook)
            def hooked(gradient: Any) -> Any:
                mine: Any = parameter()
                self.tell("gradient_ready", mine, gradient.grad if gradient is mine else gradient)
                result = hook(gradient)
                self.tell("gradient_handled", mine)
                return result

            return function(tensor, hooked)

        return register

    # -- operations on tensors

    def _listen_to_tensors(self, replaced: Replaced) -> None:
        dtensor = getattr(sys.modules.get("torch.distributed.tensor"), "DTensor", None)
        if dtensor is not None:
            replaced.put(dtensor, "from_local", staticmethod(self._from_local(dtensor.from_local)))

    def _from_local(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def make(tensor: Any, device_mesh: Any = None, placements: Any = None, **named: Any) -> Any:
            are_replicas = device_mesh is not None and any(placement.is_replicate() for placement in placements or ())
            if are_replicas and (is_called_within(TENSOR_PARALLEL) or is_asked_by_program()):
                self.tell("replicated", tensor, device_mesh, placements)
            return function(tensor, device_mesh, placements, **named)

        return make

    def _listen_to_sums(self, replaced: Replaced) -> None:
        observe = partial(self._observe, replaced)
        for name in ("add_", "__iadd__"):
            observe(torch.Tensor, name, before=self._begin_addition, after=self._end_addition)
        for owner, name in ((torch, "add"), *((torch.Tensor, name) for name in ("add", "__add__", "__radd__"))):
            observe(owner, name, after=self._sum)
        for name in ("cat", "concat", "stack"):
            observe(torch, name, before="put_together")
        for name in ("__truediv__", "__itruediv__", "div_", "mul_", "sum", "mean"):
            observe(torch.Tensor, name, before="used")

    def _begin_addition(self, *arguments: Any, **named: Any) -> None:
        if _are_two_tensors(arguments, named):
            self.tell("adding", arguments)

    def _end_addition(self, total: Any, *arguments: Any, **named: Any) -> None:
        if _are_two_tensors(arguments, named):
            self.tell("added", total)

    def _sum(self, total: Any, *arguments: Any, **named: Any) -> None:
        if _are_two_tensors(arguments, named):
            self.tell("summed", arguments, total)

    # -- optimizers

    def _install_steps(self, replaced: Replaced) -> None:
        before, after = (
            OrderedDict(optimizers._global_optimizer_pre_hooks),
            OrderedDict(optimizers._global_optimizer_post_hooks),
        )
        before[HOOK], after[HOOK] = self._stepping, self._stepped
        replaced.put(optimizers, "_global_optimizer_pre_hooks", before)
        replaced.put(optimizers, "_global_optimizer_post_hooks", after)

    def _stepping(self, optimizer: Any, args: Any, named: Any) -> tuple[Any, Any] | None:
        """Report that a step begins. With a closure, return arguments with which the report follows the closure."""
        rank = self.world.me()
        if rank is None:
            return None
        rank.extra[DEPTH] = rank.extra.get(DEPTH, 0) + 1
        if rank.extra[DEPTH] > 1:
            return None
        if len(args) > 1 and callable(args[1]):
            return (args[0], self._evaluating(args[1], optimizer), *args[2:]), named
        if callable(named.get("closure")):
            return args, {**named, "closure": self._evaluating(named["closure"], optimizer)}
        self.tell("stepping", optimizer)
        return None

    def _evaluating(self, closure: Callable[[], Any], optimizer: Any) -> Callable[[], Any]:
        is_told = False

        def evaluate() -> Any:
            nonlocal is_told
            loss = closure()
            if not is_told:
                is_told = True
                self.tell("stepping", optimizer)
            return loss

        return evaluate

    def _stepped(self, optimizer: Any, args: Any, named: Any) -> None:
        rank = self.world.me()
        if rank is not None:
            rank.extra[DEPTH] -= 1
            if rank.extra[DEPTH] == 0:
                self.tell("stepped", optimizer)

    # -- groups

    def _install_groups(self, replaced: Replaced) -> None:
        for module in (dist, c10d):
            replaced.put(module, "new_group", self._new_group(c10d.new_group))
            for name in ("get_rank", "get_group_rank", "get_process_group_ranks"):
                if hasattr(module, name):
                    replaced.put(module, name, self._looking_up(getattr(c10d, name)))
        self._observe(replaced, c10d, "_warn_not_in_group", before=self._warn_outside)

    def _new_group(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def make(ranks: Any = None, *args: Any, **named: Any) -> Any:
            if ranks is not None and is_asked_by_program():
                ranks = list(ranks)
                self.tell("made_group", tuple(ranks), bool(named.get("use_local_synchronization")))
            return function(ranks, *args, **named)

        return make

    def _looking_up(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def look_up(group: Any = None, *args: Any, **named: Any) -> Any:
            if group is not None and is_users(sys._getframe(1).f_code.co_filename):
                self.tell("looked_up_place", group)
            return function(group, *args, **named)

        return look_up

    def _warn_outside(self, name: str) -> None:
        if is_asked_by_program():
            self.tell("outside", name)

    # -- files

    def _install_files(self, replaced: Replaced) -> None:
        opening = self._opening(builtins.open)
        replaced.put(builtins, "open", opening)
        replaced.put(io, "open", opening)
        self._observe(replaced, torch, "save", before=self._save)

    def _opening(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def opening(file: Any, mode: str = "r", *args: Any, **named: Any) -> Any:
            is_named = isinstance(file, str | os.PathLike) and "opener" not in named  # tempfile passes an opener
            is_shared = "a" in mode or "x" in mode  # appending and exclusive creation are safe
            if is_named and not is_shared and self.world.me() is not None:
                self._tell_of_file(file, "w" in mode or "+" in mode)
            return function(file, mode, *args, **named)

        return opening

    def _save(self, _: Any, f: Any, *arguments: Any, **named: Any) -> None:
        if isinstance(f, str | os.PathLike):
            self._tell_of_file(f, True)

    def _tell_of_file(self, file: Any, writes: bool) -> None:
        self.tell("opened", str(Path(os.fsdecode(file)).absolute()), writes)


def _are_two_tensors(arguments: tuple[Any, ...], named: dict[str, Any]) -> bool:
    return len(arguments) == 2 and not named and all(map(is_plain, arguments))
