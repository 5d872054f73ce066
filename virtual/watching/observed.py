"""Where in torch and Python watchers hear of what a program does."""

import builtins
import io
import os
import sys
import weakref
from collections import OrderedDict
from collections.abc import Callable
from functools import wraps
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
from virtual.watching.hand_steps import HandSteps

HOOK = 1 << 40  # a number that torch gives to no hook of its own
DEPTH = "optimizers that step"
OPTIMIZES = "has an optimizer"
OF_STYLES = f"tensor{os.sep}parallel{os.sep}"


class ProgramObserver:
    """Tells the watchers of a world what the calling ranks do. What it does itself is not the ranks' computing."""

    def __init__(self, world: VirtualWorld) -> None:
        self.world = world
        self.hand_steps = HandSteps(self.tell)
        self._listening: list[Callable[[Replaced], None]] = []

    def install(self, replaced: Replaced) -> None:
        """Listen, until all is restored."""
        drawing = self._drawing(loading._BaseDataLoaderIter.__next__)
        replaced.put(loading._BaseDataLoaderIter, "__next__", drawing)
        replaced.put(DistributedSampler, "__iter__", self._before(DistributedSampler.__iter__, "sampling"))
        replaced.put(DistributedSampler, "set_epoch", self._before(DistributedSampler.set_epoch, "setting_epoch"))
        made_sampler = self._after(DistributedSampler.__init__, "made_sampler")
        replaced.put(DistributedSampler, "__init__", self._first(made_sampler, self._listen_to_results, replaced))
        ddp = DistributedDataParallel
        replaced.put(ddp, "__init__", self._after(ddp.__init__, "wrapped"))
        replaced.put(ddp, "forward", self._before(ddp.forward, "forward_begins"))
        replaced.put(ddp, "register_comm_hook", self._hooking(ddp.register_comm_hook))
        replaced.put(torch.autograd, "backward", self._backward(torch.autograd.backward))
        for name in ("register_hook", "register_post_accumulate_grad_hook"):
            replaced.put(torch.Tensor, name, self._hooking_gradients(getattr(torch.Tensor, name)))
        for owner in (torch.nn.utils, torch.nn.utils.clip_grad):
            replaced.put(owner, "clip_grad_norm_", self._clipping(owner.clip_grad_norm_))
        replaced.put(torch.amp.GradScaler, "step", self._before(torch.amp.GradScaler.step, "scaler_steps"))
        replaced.put(optimizers.Optimizer, "__init__", self._making(optimizers.Optimizer.__init__))
        replaced.put(torch.nn.Module, "eval", self._before(torch.nn.Module.eval, "evaluating"))
        init_mesh = device_mesh.DeviceMesh.__init__
        replaced.put(device_mesh.DeviceMesh, "__init__", self._first(init_mesh, self._listen_to_tensors, replaced))
        if self.world.watch.dropping is not nobody:  # torch.jit.script cannot compile what stands for it
            replaced.put(torch.nn.functional, "dropout", self._dropping(torch.nn.functional.dropout))
        self._install_steps(replaced)
        self._install_groups(replaced)
        self._install_messages(replaced)
        self._install_files(replaced)

    def tell(self, event: str, *said: Any) -> None:
        """Tell of something that the calling rank does, which is none of its computing; of other threads nothing."""
        rank, pass_on = self.world.me(), getattr(self.world.watch, event)
        if pass_on is not nobody and rank is not None and rank.number >= 0 and rank.job.finding is None:
            self.world.computing.charge(rank)
            with Neutral():
                pass_on(rank, *said)
            self.world.computing.forget(rank)

    def _first(
        self, function: Callable[..., Any], listen: Callable[[Replaced], None], replaced: Replaced
    ) -> Callable[..., Any]:
        """Return a function whose first call lets more be listened to, which nobody else is to pay for."""

        @wraps(function)
        def told(*args: Any, **named: Any) -> Any:
            if listen not in self._listening:
                self._listening.append(listen)
                listen(replaced)
            return function(*args, **named)

        return told

    def _before(self, function: Callable[..., Any], event: str) -> Callable[..., Any]:
        def told(owner: Any, *args: Any, **named: Any) -> Any:
            self.tell(event, owner)
            return function(owner, *args, **named)

        return told

    def _after(self, function: Callable[..., Any], event: str) -> Callable[..., Any]:
        def told(owner: Any, *args: Any, **named: Any) -> Any:
            result = function(owner, *args, **named)
            self.tell(event, owner)
            return result

        return told

    def _backward(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def told(tensors: Any, *args: Any, **named: Any) -> Any:
            roots = (tensors,) if isinstance(tensors, torch.Tensor) else tuple(tensors)
            rank = self._without_optimizer()
            if rank is not None:
                self.hand_steps.begin(rank, roots)
            self.tell("backward_begins", roots)
            result = function(tensors, *args, **named)
            self.tell("backward_ended")
            if rank is not None:
                self.hand_steps.follow(rank)
            return result

        return told

    def _without_optimizer(self) -> Rank | None:
        """Return the calling rank if it has made no optimizer."""
        rank = self.world.me()
        is_watched = self.world.watch.stepping is not nobody
        return rank if is_watched and rank is not None and rank.number >= 0 and OPTIMIZES not in rank.extra else None

    def _drawing(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def told(loader: Any, *args: Any, **named: Any) -> Any:
            rank = self._without_optimizer()
            if rank is not None:
                self.hand_steps.end(rank)
            self.tell("batch_drawn")
            return function(loader, *args, **named)

        return told

    def _making(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def told(optimizer: Any, *args: Any, **named: Any) -> Any:
            function(optimizer, *args, **named)
            rank = self.world.me()
            if rank is not None:
                rank.extra[OPTIMIZES] = True
            self.tell("made_optimizer", optimizer)

        return told

    def _hooking(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def told(ddp: Any, state: Any, hook: Callable[..., Any]) -> Any:
            site = find_site()

            @wraps(hook)
            def hooked(state: Any, bucket: Any) -> Any:
                self.tell("hooked", bucket, site)
                return hook(state, bucket)

            return function(ddp, state, hooked)

        return told

    def _hooking_gradients(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return how a program registers a hook, which tells of a parameter's gradient before and after it."""

        @wraps(function)
        def told(tensor: Any, hook: Callable[..., Any]) -> Any:
            if not (tensor.is_leaf and is_plain(tensor) and is_users(sys._getframe(1).f_code.co_filename)):
                return function(tensor, hook)
            parameter = weakref.ref(tensor)

            @wraps(hook)
            def hooked(given: Any) -> Any:
                mine: Any = parameter()
                self.tell("gradient_ready", mine, given.grad if given is mine else given)
                result = hook(given)
                self.tell("gradient_handled", mine)
                return result

            return function(tensor, hooked)

        return told

    def _dropping(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def told(tensor: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
            if training and p > 0:
                self.tell("dropping")
            return function(tensor, p, training, inplace)

        return told

    def _clipping(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def told(*args: Any, **named: Any) -> Any:
            self.tell("clipping")
            return function(*args, **named)

        return told

    # -- what is done with tensors

    def _listen_to_results(self, replaced: Replaced) -> None:
        """Hear how the results of samples are put together and compared."""
        for owner, name in ((torch, "cat"), (torch, "concat"), (torch, "argmax"), (torch.Tensor, "argmax")):
            replaced.put(owner, name, self._joining(getattr(owner, name)))
        for owner, name in ((torch, "eq"), (torch.Tensor, "eq"), (torch.Tensor, "__eq__")):
            replaced.put(owner, name, self._comparing(getattr(owner, name)))

    def _joining(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def told(parts: Any, *args: Any, **named: Any) -> Any:
            whole = function(parts, *args, **named)
            tensors = [parts] if isinstance(parts, torch.Tensor) else parts
            if all(map(is_plain, (*tensors, whole))):
                self.tell("joined", tensors, whole)
            return whole

        return told

    def _comparing(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def told(one: Any, other: Any, *args: Any, **named: Any) -> Any:
            if is_plain(one) and is_plain(other):
                self.tell("compared", one, other)
            return function(one, other, *args, **named)

        return told

    def _listen_to_tensors(self, replaced: Replaced) -> None:
        """Hear of DTensors, where the program has imported them."""
        found = getattr(sys.modules.get("torch.distributed.tensor"), "DTensor", None)
        if found is not None:
            replaced.put(found, "from_local", staticmethod(self._from_local(found.from_local)))

    def _from_local(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def told(tensor: Any, device_mesh: Any = None, placements: Any = None, **named: Any) -> Any:
            are_replicas = device_mesh is not None and any(one.is_replicate() for one in placements or ())
            if are_replicas and (is_called_within(OF_STYLES) or is_asked_by_program()):
                self.tell("replicated", tensor, device_mesh, placements)
            return function(tensor, device_mesh, placements, **named)

        return told

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
        """Tell of a step when its gradients are there; return its arguments if that is in a closure of the program."""
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
        """Return a closure whose first call is followed by the step."""
        told: list[bool] = []

        def evaluate() -> Any:
            loss = closure()
            if not told:
                told.append(True)
                self.tell("stepping", optimizer)
            return loss

        return evaluate

    def _stepped(self, optimizer: Any, args: Any, named: Any) -> None:
        rank = self.world.me()
        if rank is not None:
            rank.extra[DEPTH] -= 1
            if rank.extra[DEPTH] == 0:
                self.tell("stepped", optimizer)

    # -- messages

    def _install_messages(self, replaced: Replaced) -> None:
        for name in ("recv", "irecv") if self.world.watch.adding is not nobody else ():
            receiving = self._first(getattr(c10d, name), self._listen_to_sums, replaced)
            for module in (dist, c10d):
                replaced.put(module, name, receiving)

    def _listen_to_sums(self, replaced: Replaced) -> None:
        """Hear which tensors are added, where ranks receive messages."""
        for name in ("add_", "__iadd__"):
            replaced.put(torch.Tensor, name, self._adding(getattr(torch.Tensor, name)))
        for owner, name in ((torch, "add"), *((torch.Tensor, name) for name in ("add", "__add__", "__radd__"))):
            replaced.put(owner, name, self._summing(getattr(owner, name)))
        for name in ("cat", "concat", "stack"):
            replaced.put(torch, name, self._before(getattr(torch, name), "put_together"))
        for name in ("__truediv__", "__itruediv__", "div_", "mul_", "sum", "mean"):
            replaced.put(torch.Tensor, name, self._before(getattr(torch.Tensor, name), "used"))

    def _summing(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def told(one: Any, other: Any, *args: Any, **named: Any) -> Any:
            total = function(one, other, *args, **named)
            if is_plain(one) and is_plain(other) and not args and not named:
                self.tell("summed", (one, other), total)
            return total

        return told

    def _adding(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def told(one: Any, other: Any, *args: Any, **named: Any) -> Any:
            are_tensors = is_plain(one) and is_plain(other) and not args and not named
            if are_tensors:
                self.tell("adding", (one, other))
            total = function(one, other, *args, **named)
            if are_tensors:
                self.tell("added", total)
            return total

        return told

    # -- groups

    def _install_groups(self, replaced: Replaced) -> None:
        for module in (dist, c10d):
            replaced.put(module, "new_group", self._new_group(c10d.new_group))
            for name in ("get_rank", "get_group_rank", "get_process_group_ranks"):
                if hasattr(module, name):
                    replaced.put(module, name, self._looking_up(getattr(c10d, name)))
        replaced.put(c10d, "_warn_not_in_group", self._outside(c10d._warn_not_in_group))

    def _new_group(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def told(ranks: Any = None, *args: Any, **named: Any) -> Any:
            if ranks is not None and is_asked_by_program():
                ranks = list(ranks)
                self.tell("made_group", tuple(ranks), bool(named.get("use_local_synchronization")))
            return function(ranks, *args, **named)

        return told

    def _looking_up(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def told(group: Any = None, *args: Any, **named: Any) -> Any:
            if group is not None and is_users(sys._getframe(1).f_code.co_filename):
                self.tell("looked_up_place", group)
            return function(group, *args, **named)

        return told

    def _outside(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def told(verb: str) -> Any:
            if is_asked_by_program():
                self.tell("outside", verb)
            return function(verb)

        return told

    # -- files

    def _install_files(self, replaced: Replaced) -> None:
        opening = self._opening(builtins.open)
        replaced.put(builtins, "open", opening)
        replaced.put(io, "open", opening)
        replaced.put(torch, "save", self._saving(torch.save))

    def _opening(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def told(file: Any, mode: str = "r", *args: Any, **named: Any) -> Any:
            is_named = isinstance(file, str | os.PathLike) and "opener" not in named  # else made by tempfile
            if is_named and self.world.me() is not None:
                self._tell_of_file(file, "w" in mode or "+" in mode, "a" in mode or "x" in mode)
            return function(file, mode, *args, **named)

        return told

    def _saving(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def told(obj: Any, f: Any, *args: Any, **named: Any) -> Any:
            if isinstance(f, str | os.PathLike):
                self._tell_of_file(f, True, False)
            return function(obj, f, *args, **named)

        return told

    def _tell_of_file(self, file: Any, writes: bool, is_shared: bool) -> None:
        """Tell of a file; appending and creating alone are ways to share one."""
        if not is_shared:
            self.tell("opened", str(Path(os.fsdecode(file)).absolute()), writes)
