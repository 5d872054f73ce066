"""Give each rank its own import locks, signal handlers, threads and ``random`` module state."""

import functools
import os
import random
import signal
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from importlib import _bootstrap as bootstrap
from typing import Any

from virtual.process.replaced import Replaced
from virtual.ranks.rank import Stopped
from virtual.ranks.sites import is_asked_by_program, is_called_within
from virtual.ranks.world import VirtualWorld

OF_CHECKPOINTS = f"distributed{os.sep}checkpoint{os.sep}"


def install_interpreter(world: VirtualWorld, replaced: Replaced) -> None:
    """Give each rank its own import locks, signal handlers and threads."""
    replaced.put(bootstrap, "_get_module_lock", _lock_of_rank(world, bootstrap._get_module_lock))  # type: ignore[attr-defined]
    replaced.put(signal, "signal", _handler_of_rank(world, signal.signal))
    replaced.put(threading.Thread, "start", _start_for_rank(world, threading.Thread.start))
    for owner, name in ((threading.Thread, "join"), (threading.Condition, "wait")):  # queues and events use Condition
        replaced.put(owner, name, _wait_for_threads(world, getattr(owner, name)))
    replaced.put(ThreadPoolExecutor, "submit", _submit_for_rank(world, ThreadPoolExecutor.submit))


def _lock_of_rank(world: VirtualWorld, original: Callable[[str], Any]) -> Callable[[str], Any]:
    def lock(name: str) -> Any:
        rank = world.me()
        if rank is not None and world.belongings.may_be_owned(name):
            name = f"{name} of rank {rank.number} of job {rank.job.number}"
        return original(name)

    return lock


def _handler_of_rank(world: VirtualWorld, original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap ``signal.signal`` to store a rank's handlers, because only the main thread can install handlers."""

    def install(number: Any, handler: Any) -> Any:
        rank = world.me()
        if rank is None:
            return original(number, handler)
        handlers = rank.extra.setdefault("signal handlers", {})
        before = handlers.get(number, signal.getsignal(number))
        handlers[number] = handler
        return before

    return install


def _start_for_rank(
    world: VirtualWorld, original: Callable[[threading.Thread], None]
) -> Callable[[threading.Thread], None]:
    def start(self: threading.Thread) -> None:
        rank = world.me()
        if rank is not None:
            original_run = self.run

            def run() -> None:
                world.adopt_thread(rank)
                with suppress(Stopped):
                    original_run()

            self.run = run  # type: ignore[method-assign]
            if is_asked_by_program(("threading.py",)):
                rank.thread_lock.threads.append(self)
            with rank.thread_lock:  # not lent while this call waits for the thread to start
                original(self)
        else:
            original(self)

    return start


def _wait_for_threads(world: VirtualWorld, original: Callable[..., Any]) -> Callable[..., Any]:
    def wait(*args: Any, **named: Any) -> Any:
        rank = world.me()
        if rank is None or threading.current_thread() is not rank.thread:
            return original(*args, **named)
        with rank.thread_lock.lend():
            return original(*args, **named)

    return wait


def _submit_for_rank(world: VirtualWorld, original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap ``submit`` to save checkpoints at once, in the rank's own thread, because saving communicates."""

    def submit(self: ThreadPoolExecutor, fn: Callable[..., Any], /, *args: Any, **named: Any) -> Any:
        if world.me() is None or not is_called_within(OF_CHECKPOINTS):
            return original(self, fn, *args, **named)
        future = Future[Any]()
        try:
            future.set_result(fn(*args, **named))
        except Exception as error:
            future.set_exception(error)
        return future

    return submit


def install_random(world: VirtualWorld, replaced: Replaced) -> None:
    """Make the module-level functions of ``random`` use the calling rank's generator."""
    for name, function in list(vars(random).items()):
        if isinstance(getattr(function, "__self__", None), random.Random):
            replaced.put(random, name, _draw_for_rank(world, name, function))


def _draw_for_rank(world: VirtualWorld, name: str, shared: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(shared)
    def draw(*args: Any, **named: Any) -> Any:
        rank = world.me()
        return (shared if rank is None else getattr(rank.own.python_numbers, name))(*args, **named)

    return draw
