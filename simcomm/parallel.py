"""Work in parts that do not depend on each other: in this process while it is quick, then on all cores or elsewhere."""

import multiprocessing
import os
import pickle
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from itertools import islice
from multiprocessing.connection import wait as wait_for
from threading import Thread
from time import process_time
from types import ModuleType
from typing import TypeVar

from collectives.errors import InputError
from collectives.quoting import quote
from collectives.records.environment import cores

Task = TypeVar("Task")
Result = TypeVar("Result")

WORTH_PROCESSES_S = 4.0  # of a core that are left: each process takes one to import what it needs
LOOK_AFTER_S = 1.0  # of a core, after which it is seen how much is left; waiting for a busy machine is no work


def in_any_order(
    function: Callable[[Task], Result],
    tasks: Sequence[Task],
    executor: Executor | None = None,
    *,
    takes_long: bool = False,
    stays: bool = False,
) -> Iterator[tuple[int, Result]]:
    """Yield the number of each task and what ``function`` returns for it, as they get done.

    Without an executor they are done here and, if much is left after a second or ``takes_long`` says so, by a process a
    core, which end with the iteration and with this process. ``function``, tasks and results must be picklable then,
    unless it ``stays`` in this process. What is not done when the iteration ends, by an interrupt too, is given up.

    >>> sorted(in_any_order(abs, [-1, -2]))
    [(0, 1), (1, 2)]
    """
    if executor is not None and not isinstance(executor, Executor):
        raise InputError(f"executor is {quote(executor)}; give one of concurrent.futures")
    if executor is not None:
        yield from _submitted(executor, function, tasks, 0)
        return
    begun = process_time()
    for number, task in enumerate(tasks):
        took = process_time() - begun
        is_long = number and took > LOOK_AFTER_S and took / number * (len(tasks) - number) > WORTH_PROCESSES_S
        if (takes_long or is_long) and not stays and cores() > 1:
            with _processes(tasks[number:]) as pool:
                yield from _submitted(pool, function, tasks, number)
            return
        yield number, function(task)


def _submitted(
    executor: Executor, function: Callable[[Task], Result], tasks: Sequence[Task], first: int
) -> Iterator[tuple[int, Result]]:
    """Yield the results of the tasks from ``first`` on, of which only some are with the executor at a time."""
    left = iter(range(first, len(tasks)))
    pending: dict[Future[Result], int] = {}
    try:
        while True:
            # parts that an executor is given before the first of them is done
            for number in islice(left, 64 - len(pending)):
                pending[executor.submit(function, tasks[number])] = number
            if not pending:
                return
            for future in wait(pending, return_when=FIRST_COMPLETED).done:
                yield pending.pop(future), future.result()
    finally:
        for future in pending:
            future.cancel()


@contextmanager
def _processes(tasks: Sequence[object]) -> Iterator[Executor]:
    """Within the context, an executor with a process a core; they are ended with it, whatever they are at."""
    before = {*multiprocessing.active_children()}
    context = multiprocessing.get_context("spawn")  # this process may have threads, which a fork would not
    pool = ProcessPoolExecutor(min(cores(), len(tasks)), context, _begin)
    try:
        with _without_main(tasks):
            yield pool
    finally:
        for process in {*multiprocessing.active_children()} - before:
            process.kill()
        pool.shutdown(cancel_futures=True)  # with its thread: while that lives, the semaphores of its queues do


@contextmanager
def _without_main(tasks: Sequence[object]) -> Iterator[None]:
    """Within the context, keep new processes from executing the main module again, unless it defines their work."""
    main = sys.modules["__main__"]
    if b"__main__" not in pickle.dumps(tasks[:1]):
        sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def _begin() -> None:
    """Prepare a process: an interrupt of the terminal is its owner's, with whom it ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    owner = multiprocessing.parent_process()
    assert owner is not None
    Thread(target=_end_with, args=(owner.sentinel,), daemon=True).start()


def _end_with(sentinel: int) -> None:
    wait_for([sentinel])
    os.kill(os.getpid(), signal.SIGKILL)
