"""Observe a program's calls of torch and Python, and notify the watchers."""

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

HOOK = 1 << 40  # key of our optimizer hooks; torch numbers its own from 0
DEPTH = "optimizers that step"
TENSOR_PARALLEL = f"tensor{os.sep}parallel{os.sep}"

Call = Callable[..., Any]


class ProgramObserver:
    """Notifies the watchers of each rank's calls. Its own work does not count as compute."""

    def __init__(self, world: VirtualWorld, replaced: Replaced) -> None:
        self.world, self._replaced = world, replaced
        self._listening: set[str] = set()

    def install(self) -> None:
        wrap, before, after = self._replaced.wrap, self._before, self._after
        ddp, sampler = DistributedDataParallel, DistributedSampler
        before(loading._BaseDataLoaderIter, "__next__", "batch_drawn")
        before(sampler, "__iter__", "sampling")
        before(sampler, "set_epoch", "setting_epoch")
        after(sampler, "__init__", "made_sampler")
        after(ddp, "__init__", "wrapped")
        before(ddp, "forward", "forward_begins")
        wrap(torch.autograd, "backward", self._run_backward)
        before(torch.amp.GradScaler, "step", "scaler_steps")
        after(optimizers.Optimizer, "__init__", "made_optimizer")
        before(device_mesh.DeviceMesh, "__init__", self._listen_to_tensors)
        wrap(ddp, "register_comm_hook", self._register_comm_hook)
        for name in ("register_hook", "register_post_accumulate_grad_hook"):
            wrap(torch.Tensor, name, self._register_gradient_hook)
        for name in ("recv", "irecv") if self.world.watch.adding is not nobody else ():
            before(c10d, name, self._listen_to_sums)
            self._replaced.put(dist, name, getattr(c10d, name))  # P2POp compares functions by identity
        for at, act in (("pre", self._stepping), ("post", self._stepped)):
            hooks = f"_global_optimizer_{at}_hooks"
            self._replaced.put(optimizers, hooks, OrderedDict(getattr(optimizers, hooks)) | {HOOK: act})
        for module in (dist, c10d):
            wrap(module, "new_group", self._new_group)
        before(c10d, "_warn_not_in_group", self._warn_outside)
        wrap(io, "open", self._open)
        self._replaced.put(builtins, "open", io.open)
        before(torch, "save", self._save)

    def tell(self, event: str, *arguments: Any) -> None:
        """Notify the watchers of an event on the calling rank. Threads that do not belong to a rank are ignored."""
        rank, pass_on = self.world.me(), getattr(self.world.watch, event)
        if pass_on is not nobody and rank is not None and rank.number >= 0 and rank.job.finding is None:
            self.world.computing.charge(rank)
            with Neutral():
                pass_on(rank, *arguments)
            self.world.computing.forget(rank)

    def _before(self, owner: Any, name: str, act: Call | str) -> None:
        """Before each call of a function, call ``act`` with its arguments. If ``act`` is a string, send this event."""
        first = (lambda subject, *_, **__: self.tell(act, subject)) if isinstance(act, str) else act

        def around(original: Call, *arguments: Any, **named: Any) -> Any:
            first(*arguments, **named)
            return original(*arguments, **named)

        self._replaced.wrap(owner, name, around)

    def _after(self, owner: Any, name: str, act: Call | str) -> None:
        """After each call of a function, call ``act`` with its result and arguments. A string is an event to send."""
        last = (lambda _, subject, *__, **___: self.tell(act, subject)) if isinstance(act, str) else act

        def around(original: Call, *arguments: Any, **named: Any) -> Any:
            result = original(*arguments, **named)
            last(result, *arguments, **named)
            return result

        self._replaced.wrap(owner, name, around)

    def _is_first(self, name: str) -> bool:
        is_first = name not in self._listening
        self._listening.add(name)
        return is_first

    # -- training

    def _run_backward(self, original: Call, tensors: Any, *arguments: Any, **named: Any) -> None:
        self.tell("backward_begins", (tensors,) if isinstance(tensors, torch.Tensor) else tuple(tensors))
        original(tensors, *arguments, **named)
        self.tell("backward_ended")

    def _register_comm_hook(self, original: Call, ddp: Any, state: Any, hook: Call) -> Any:
        site = find_site()

        @wraps(hook)
        def hooked(state: Any, bucket: Any) -> Any:
            self.tell("hooked", bucket, site)
            return hook(state, bucket)

        return original(ddp, state, hooked)

    def _register_gradient_hook(self, original: Call, tensor: Any, hook: Call) -> Any:
        if not (tensor.is_leaf and is_plain(tensor) and is_users(sys._getframe(2).f_code.co_filename)):
            return original(tensor, hook)
        parameter = weakref.ref(tensor)

        @wraps(hook)
        def hooked(gradient: Any) -> Any:
            mine: Any = parameter()
            self.tell("gradient_ready", mine, gradient.grad if gradient is mine else gradient)
            result = hook(gradient)
            self.tell("gradient_handled", mine)
            return result

        return original(tensor, hooked)

    # -- operations on tensors

    def _listen_to_tensors(self, *arguments: Any, **named: Any) -> None:
        dtensor = getattr(sys.modules.get("torch.distributed.tensor"), "DTensor", None)
        if dtensor is not None and self._is_first("tensors"):
            self._replaced.put(dtensor, "from_local", staticmethod(self._from_local(dtensor.from_local)))

    def _from_local(self, function: Call) -> Call:
        def make(tensor: Any, device_mesh: Any = None, placements: Any = None, **named: Any) -> Any:
            are_replicas = device_mesh is not None and any(placement.is_replicate() for placement in placements or ())
            if are_replicas and (is_called_within(TENSOR_PARALLEL) or is_asked_by_program()):
                self.tell("replicated", tensor, device_mesh, placements)
            return function(tensor, device_mesh, placements, **named)

        return make

    def _listen_to_sums(self, *arguments: Any, **named: Any) -> None:
        if not self._is_first("sums"):
            return
        tensor = torch.Tensor
        self._replaced.wrap(torch, "add", self._add)
        for name in ("add_", "__iadd__", "add", "__add__", "__radd__"):
            self._replaced.wrap(tensor, name, self._add)
        for name in ("cat", "concat", "stack"):
            self._before(torch, name, "put_together")
        for name in ("__truediv__", "__itruediv__", "div_", "mul_", "sum", "mean"):
            self._before(tensor, name, "used")

    def _add(self, original: Call, *tensors: Any, **named: Any) -> Any:
        is_followed = len(tensors) == 2 and not named and all(map(is_plain, tensors))
        if is_followed:
            self.tell("adding", tensors)
        total = original(*tensors, **named)
        if is_followed:
            self.tell("added", total)
        return total

    # -- optimizers

    def _stepping(self, optimizer: Any, args: Any, named: Any) -> tuple[Any, Any] | None:
        """Notify the watchers of a step. A closure is replaced by one that notifies them after its first call."""
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
                self._record_step(rank, optimizer)
                self.tell("stepped", optimizer)

    def _record_step(self, rank: Rank, optimizer: Any) -> None:
        recorder = rank.job.recorder
        if recorder is not None and rank.extra.setdefault("optimizer", optimizer) is optimizer:
            self.world.computing.charge(rank)
            recorder.step(rank, len(rank.step_ends))
            rank.step_ends.append(rank.clock)

    # -- groups and files

    def _new_group(self, original: Call, ranks: Any = None, *args: Any, **named: Any) -> Any:
        if ranks is not None and is_asked_by_program():
            ranks = list(ranks)
            self.tell("made_group", tuple(ranks), bool(named.get("use_local_synchronization")))
        return original(ranks, *args, **named)

    def _warn_outside(self, name: str) -> None:
        if is_asked_by_program():
            self.tell("outside", name)

    def _open(self, original: Call, file: Any, mode: str = "r", *args: Any, **named: Any) -> Any:
        is_named = isinstance(file, str | os.PathLike) and "opener" not in named  # tempfile passes an opener
        is_shared = "a" in mode or "x" in mode  # appending and exclusive creation are safe
        if is_named and not is_shared and self.world.me() is not None:
            self._tell_of_file(file, "w" in mode or "+" in mode)
        return original(file, mode, *args, **named)

    def _save(self, _: Any, f: Any, *arguments: Any, **named: Any) -> None:
        if isinstance(f, str | os.PathLike):
            self._tell_of_file(f, True)

    def _tell_of_file(self, file: Any, writes: bool) -> None:
        self.tell("opened", str(Path(os.fsdecode(file)).absolute()), writes)
