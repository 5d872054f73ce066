"""Give each rank its own import locks, signal handlers, threads and ``random`` module state."""

import os
import random
import signal
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from importlib import _bootstrap as bootstrap
from typing import Any

from virtual.process.replaced import Replaced
from virtual.ranks.rank import Rank, Stopped
from virtual.ranks.sites import is_asked_by_program, is_called_within
from virtual.ranks.world import VirtualWorld

OF_CHECKPOINTS = f"distributed{os.sep}checkpoint{os.sep}"
Call = Callable[..., Any]


def install_interpreter(world: VirtualWorld, replaced: Replaced) -> None:
    wrap = replaced.wrap_for_ranks
    wrap(bootstrap, "_get_module_lock", partial(_get_module_lock, world))
    wrap(signal, "signal", _install_handler)
    wrap(threading.Thread, "start", partial(_start_thread, world))
    wrap(ThreadPoolExecutor, "submit", _submit)
    for name, function in list(vars(random).items()):
        if isinstance(getattr(function, "__self__", None), random.Random):
            wrap(random, name, partial(_draw, name))


def _get_module_lock(world: VirtualWorld, rank: Rank, original: Call, name: str) -> Any:
    is_own = world.belongings.may_be_owned(name)
    return original(f"{name} of rank {rank.number} of job {rank.job.number}" if is_own else name)


def _install_handler(rank: Rank, original: Call, number: Any, handler: Any) -> Any:
    """Store a rank's signal handler without installing it, because only the main thread can install handlers."""
    handlers = rank.extra.setdefault("signal handlers", {})
    before = handlers.get(number, signal.getsignal(number))
    handlers[number] = handler
    return before


def _start_thread(world: VirtualWorld, rank: Rank, original: Call, thread: threading.Thread) -> None:
    original_run = thread.run

    def run() -> None:
        world.by_thread[threading.get_ident()] = rank
        with suppress(Stopped):
            original_run()

    thread.run = run  # type: ignore[method-assign]
    if is_asked_by_program(("threading.py",)):
        rank.threads.append(thread)
    original(thread)


def _submit(rank: Rank, original: Call, pool: Any, fn: Call, /, *args: Any, **named: Any) -> Any:
    """Submit ``fn`` to a thread pool, but run it in the calling thread if it saves a checkpoint, which communicates."""
    if not is_called_within(OF_CHECKPOINTS):
        return original(pool, fn, *args, **named)
    future = Future[Any]()
    try:
        future.set_result(fn(*args, **named))
    except Exception as error:
        future.set_exception(error)
    return future


def _draw(name: str, rank: Rank, original: Call, *args: Any, **named: Any) -> Any:
    return getattr(rank.own.python_numbers, name)(*args, **named)
