"""Work in parts that do not depend on each other: in this process while it is quick, then on all cores or elsewhere."""

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from itertools import islice
from threading import Thread
from time import process_time, sleep
from typing import TypeVar

from collectives.records.environment import cores

Task = TypeVar("Task")
Result = TypeVar("Result")

WORTH_PROCESSES_S = 4.0  # of a core that are left: each process takes one to import what it needs
LOOK_AFTER_S = 1.0  # of a core, after which it is seen how much is left; waiting for a busy machine is no work
MOST_PENDING = 64  # parts that an executor is given before the first of them is done


def in_any_order(
    function: Callable[[Task], Result],
    tasks: Sequence[Task],
    executor: Executor | None = None,
    *,
    takes_long: bool = False,
) -> Iterator[tuple[int, Result]]:
    """Yield the number of each task and what ``function`` returns for it, as they get done.

    Without an executor they are done here and, if much is left after a second or ``takes_long`` says so, by a process a
    core, which end with the iteration and with this process. ``function``, tasks and results must be picklable then.
    What is not done when the iteration ends, by an interrupt too, is given up.

    >>> sorted(in_any_order(abs, [-1, -2]))
    [(0, 1), (1, 2)]
    """
    if executor is not None:
        yield from _submitted(executor, function, tasks, 0)
        return
    begun = process_time()
    for number, task in enumerate(tasks):
        took = process_time() - begun
        is_long = number and took > LOOK_AFTER_S and took / number * (len(tasks) - number) > WORTH_PROCESSES_S
        if (takes_long or is_long) and cores() > 1:
            yield from _by_processes(function, tasks, number)
            return
        yield number, function(task)


def _by_processes(
    function: Callable[[Task], Result], tasks: Sequence[Task], first: int
) -> Iterator[tuple[int, Result]]:
    """Yield the results of the tasks from ``first`` on, by a process a core."""
    from joblib.externals.loky import ProcessPoolExecutor  # what is quick does without it

    pool = ProcessPoolExecutor(min(cores(), len(tasks) - first), initializer=_begin, initargs=(os.getpid(),))
    try:
        yield from _submitted(pool, function, tasks, first)
    finally:
        pool.shutdown(kill_workers=True)  # whatever they are at


def _submitted(
    executor: Executor, function: Callable[[Task], Result], tasks: Sequence[Task], first: int
) -> Iterator[tuple[int, Result]]:
    """Yield the results of the tasks from ``first`` on, of which only some are with the executor at a time."""
    left = iter(range(first, len(tasks)))
    pending: dict[Future[Result], int] = {}
    try:
        while True:
            for number in islice(left, MOST_PENDING - len(pending)):
                pending[executor.submit(function, tasks[number])] = number
            if not pending:
                return
            for future in wait(pending, return_when=FIRST_COMPLETED).done:
                yield pending.pop(future), future.result()
    finally:
        for future in pending:
            future.cancel()


def _begin(owner: int) -> None:
    """Prepare a process: an interrupt of the terminal is its owner's, with whom it ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Thread(target=_end_with, args=(owner,), daemon=True).start()


def _end_with(owner: int) -> None:
    while os.getppid() == owner:
        sleep(0.2)
    os.kill(os.getpid(), signal.SIGKILL)
