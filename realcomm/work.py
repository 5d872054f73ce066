"""Collectives under way: what is asked of one group happens in the order in which it was asked."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from functools import lru_cache

import torch
import torch.distributed as dist

Action = Callable[[], None]


class Work:
    """A collective under way, as ``torch.distributed`` hands it out."""

    def __init__(self, future: "Future[None]") -> None:
        self._future = future

    def wait(self, timeout: timedelta | None = None) -> bool:
        """The collective is done and its tensors may be used. Raises what it failed with, and TimeoutError."""
        self._future.result(None if timeout is None else timeout.total_seconds())
        return True

    def is_completed(self) -> bool:
        """Whether it is done, or has failed."""
        return self._future.done()


class GpuWork:
    """The same on a GPU, where only the stream needs to wait and not the program."""

    def __init__(self, done: torch.cuda.Event) -> None:
        self._done = done

    def wait(self, timeout: timedelta | None = None) -> bool:
        """What is asked of the current stream from here on happens after the collective."""
        self._done.wait()
        return True

    def is_completed(self) -> bool:
        """Whether the GPU is through with it."""
        return bool(self._done.query())


def start(action: Action, group: dist.ProcessGroup, device: torch.device, async_op: bool) -> Work | GpuWork | None:
    """``action`` has happened, after everything asked of ``group`` before; with ``async_op`` it is under way."""
    if device.type == "cuda":
        return _start_on_stream(action, group, device, async_op)
    line = _line(group)
    if async_op:
        return Work(line.put(action))
    line.finish()
    action()
    return None


def _start_on_stream(action: Action, group: dist.ProcessGroup, device: torch.device, async_op: bool) -> GpuWork | None:
    """A stream of the group's own keeps the order, and lets the current stream compute meanwhile."""
    current, own = torch.cuda.current_stream(device), _stream(group, device)
    own.wait_stream(current)
    with torch.cuda.stream(own):
        action()
    work = GpuWork(own.record_event())
    if async_op:
        return work
    work.wait()
    return None


@lru_cache(maxsize=8)
def _stream(group: dist.ProcessGroup, device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)


class _Line:
    """The one thread that does what was asked of a group; it ends when nobody remembers the group."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="ringlab")
        self._last: Future[None] | None = None

    def put(self, action: Action) -> "Future[None]":
        self._last = self._thread.submit(action)
        return self._last

    def finish(self) -> None:
        """All that was asked for has happened, or failed: whoever waits for that work hears of it."""
        if self._last is not None:
            self._last.exception()
            self._last = None


@lru_cache(maxsize=8)
def _line(group: dist.ProcessGroup) -> _Line:
    return _Line()
