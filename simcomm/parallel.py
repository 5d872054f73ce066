"""Run independent tasks in this process, or in one process per core if they take long.

Within ``joblib.parallel_config``, tasks run on the chosen backend.
"""

import os
import pickle
import signal
import warnings
from collections.abc import Callable, Generator, Sequence
from threading import Thread
from time import process_time, sleep
from typing import TypeVar

from joblib import Parallel, delayed
from joblib.externals.loky import get_reusable_executor
from joblib.parallel import BACKENDS, DEFAULT_BACKEND, get_active_backend

from collectives.records.environment import cores

Task = TypeVar("Task")
Result = TypeVar("Result")

WORTH_PROCESSES_S = 4.0  # remaining CPU seconds; each process needs one for its imports
LOOK_AFTER_S = 1.0  # CPU seconds before the remaining work is estimated


def in_any_order(
    function: Callable[[Task], Result], tasks: Sequence[Task], *, takes_long: bool = False
) -> Generator[tuple[int, Result]]:
    """Yield the index and result of each task, in order of completion.

    Tasks start in this process. If more than four CPU seconds of work are left after one second, worker processes run
    the remaining tasks, at most one per core. With ``takes_long``, they run all tasks. Functions of the main module,
    and functions that cannot be pickled, stay in this process. Inside ``joblib.parallel_config``, its backend runs all
    tasks. Closing the iterator cancels the remaining tasks.

    >>> sorted(in_any_order(abs, [-1, -2]))
    [(0, 1), (1, 2)]
    """
    is_chosen, start = not isinstance(get_active_backend()[0], BACKENDS[DEFAULT_BACKEND]), process_time()
    for number, task in enumerate(tasks):
        took = process_time() - start
        is_long = number and took > LOOK_AFTER_S and took / number * (len(tasks) - number) > WORTH_PROCESSES_S
        if is_chosen or ((takes_long or is_long) and cores() > 1 and _can_travel(function, task)):
            yield from _elsewhere(function, tasks, range(number, len(tasks)), is_chosen)
            return
        yield number, function(task)


def _elsewhere(
    function: Callable[[Task], Result], tasks: Sequence[Task], numbers: range, is_chosen: bool
) -> Generator[tuple[int, Result]]:
    """Run the tasks in ``numbers`` in other processes. Yield each number and result, and then end the processes."""
    calls = (delayed(_numbered)(function, number, tasks[number]) for number in numbers)
    options_here = {"n_jobs": min(cores(), len(numbers)), "initializer": _prepare, "initargs": (os.getpid(),)}
    options = {"return_as": "generator_unordered", "batch_size": 1, "max_nbytes": None}  # arrays stay writable
    results = Parallel(**options, **({} if is_chosen else options_here))(calls)
    try:
        for result in results:  # noqa: UP028  # "yield from" would close it before the warning is silenced
            yield result
    finally:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "[0-9]+ tasks which were still being processed", UserWarning)
            results.close()
        if not is_chosen:
            get_reusable_executor().shutdown(wait=True, kill_workers=True)  # else they stay alive for minutes


def _can_travel(function: Callable[[Task], Result], task: Task) -> bool:
    """Return whether another process can run the task: it can be pickled and does not refer to the main module."""
    try:
        return b"__main__" not in pickle.dumps((function, task))
    except (pickle.PicklingError, AttributeError, TypeError):
        return False


def _numbered(function: Callable[[Task], Result], number: int, task: Task) -> tuple[int, Result]:
    return number, function(task)


def _prepare(owner: int) -> None:
    """Ignore Ctrl-C in a worker process, and end the worker when its parent process ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Thread(target=_end_with, args=(owner,), daemon=True).start()


def _end_with(owner: int) -> None:
    while os.getppid() == owner:
        sleep(0.5)
    os.kill(os.getpid(), signal.SIGKILL)
