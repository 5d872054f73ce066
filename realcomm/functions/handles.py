"""Collectives under way: what is asked of one group happens in the order in which it was asked."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from functools import lru_cache

import torch
import torch.distributed as dist

from realcomm.launching.worker import done_so_far

Action = Callable[[], None]
Tensors = Sequence[torch.Tensor]


class Work:
    """A collective under way, as ``torch.distributed`` hands it out."""

    def __init__(self, future: "Future[None]", results: Tensors) -> None:
        self._future, self._results = future, results

    def wait(self, timeout: timedelta | None = None) -> bool:
        """The collective is done and its tensors may be used. Raises what it failed with, and TimeoutError."""
        if not isinstance(timeout, timedelta | None):
            raise TypeError(f"timeout is {timeout!r}; it must be a datetime.timedelta")
        try:
            self._future.result(None if timeout is None else timeout.total_seconds())
        except TimeoutError:
            if self._future.done():  # it is the collective that timed out
                raise
            raise TimeoutError(f"the collective is not done after {timeout}; {done_so_far()}") from None
        return True

    def is_completed(self) -> bool:
        """Whether it is done, or has failed."""
        return self._future.done()

    def get_future(self) -> "torch.futures.Future[list[torch.Tensor]]":
        """A future of the result tensors, to go on from with ``then``: what a communication hook of DDP returns."""
        promised: torch.futures.Future[list[torch.Tensor]] = torch.futures.Future()

        def keep(done: "Future[None]") -> None:
            error = done.exception()
            if error is None:
                promised.set_result(list(self._results))
            else:
                promised.set_exception(error)  # type: ignore[arg-type]

        self._future.add_done_callback(keep)
        return promised


class GpuWork:
    """The same on a GPU, where only the stream needs to wait and not the program."""

    def __init__(self, action: Action, stream: torch.cuda.Stream, results: Tensors) -> None:
        """``action`` was all that was asked of ``stream``. What it works on keeps its memory as long as this lives."""
        self._action, self._stream, self._results = action, stream, results
        self._done = stream.record_event()

    def wait(self, timeout: timedelta | None = None) -> bool:
        """What is asked of the current stream from here on happens after the collective."""
        self._done.wait()
        return True

    def is_completed(self) -> bool:
        """Whether the GPU is through with it."""
        return bool(self._done.query())

    def get_future(self) -> "torch.futures.Future[list[torch.Tensor]]":
        """The same as of ``Work``; a stream that waits for it goes on after the collective."""
        promised: torch.futures.Future[list[torch.Tensor]] = torch.futures.Future(devices=[self._stream.device])
        with torch.cuda.stream(self._stream):
            promised.set_result(list(self._results))
        return promised


def start(
    action: Action, group: dist.ProcessGroup, device: torch.device, results: Tensors, async_op: bool
) -> Work | GpuWork | None:
    """``action`` has happened, after everything asked of ``group`` before; with ``async_op`` it is under way."""
    if device.type == "cuda":
        work = _start_on_stream(action, group, device, results)
        if async_op:
            return work
        work.wait()
        return None
    line = _line(group)
    if async_op:
        return Work(line.put(action), results)
    line.finish()
    action()
    return None


def _start_on_stream(action: Action, group: dist.ProcessGroup, device: torch.device, results: Tensors) -> GpuWork:
    """A stream of the group's own keeps the order, and lets the current stream compute meanwhile."""
    current, own = torch.cuda.current_stream(device), _stream(group, device)
    own.wait_stream(current)
    with torch.cuda.stream(own):
        action()
    return GpuWork(action, own, results)


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
