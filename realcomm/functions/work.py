"""Run asynchronous collectives. A group executes its collectives one after another, in the order of the calls."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta

import torch
import torch.distributed as dist

from realcomm.execution.collective_sequence import Collective, sequence_of
from realcomm.execution.group_memory import keep_for
from realcomm.launching.status import get_status

Action = Callable[[Collective], None]  # executes the collective, inside its context
Tensors = Sequence[torch.Tensor]


class Work:
    """The handle of a collective in flight on CPUs, with the methods of ``torch.distributed.Work``."""

    def __init__(self, future: "Future[None]", results: Tensors) -> None:
        self._future, self._results = future, results

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Wait until the collective is done, and return True.

        Raise the collective's error if it failed, or TimeoutError if it is not done after ``timeout``. Default: no
        limit.
        """
        if not isinstance(timeout, timedelta | None):
            raise TypeError(f"timeout must be a datetime.timedelta, not {timeout!r}")
        try:
            self._future.result(None if timeout is None else timeout.total_seconds())
        except TimeoutError:
            if self._future.done():  # the collective itself timed out
                raise
            raise TimeoutError(f"the collective is not done after {timeout}; {get_status()}") from None
        return True

    def is_completed(self) -> bool:
        """Return whether the collective is done or has failed."""
        return self._future.done()

    def get_future(self) -> "torch.futures.Future[list[torch.Tensor]]":
        """Return a future of the result tensors, for communication hooks of DistributedDataParallel."""
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
    """The handle of a collective in flight on a GPU. Waiting blocks only the current stream, not the host."""

    def __init__(self, action: Action, stream: torch.cuda.Stream, results: Tensors) -> None:
        """Keep ``action`` and its memory alive. The caller must have queued the action on ``stream``."""
        self._action, self._stream, self._results = action, stream, results
        self._done = stream.record_event()

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Let the current stream wait for the collective, and return True at once; ``timeout`` has no effect."""
        self._done.wait()
        return True

    def is_completed(self) -> bool:
        """Return whether the GPU has finished the collective."""
        return bool(self._done.query())

    def get_future(self) -> "torch.futures.Future[list[torch.Tensor]]":
        """Return a future of the result tensors. Waiting for it makes the current stream wait for the collective."""
        promised: torch.futures.Future[list[torch.Tensor]] = torch.futures.Future(devices=[self._stream.device])
        with torch.cuda.stream(self._stream):
            promised.set_result(list(self._results))
        return promised


Handle = Work | GpuWork | None


def start_work(
    action: Action, name: str, group: dist.ProcessGroup, device: torch.device, results: Tensors, async_op: bool
) -> Handle:
    """Run ``action`` as the next collective of ``group``, after all earlier ones. ``name`` appears in error messages.

    If ``async_op`` is true, return a handle at once. Otherwise return None when the action is done. On a GPU, return
    None when the action is queued and the current stream waits for it. Raise DistBackendError if an earlier collective
    has failed.
    """
    collective = sequence_of(group).begin(name)
    if device.type == "cuda":
        work = _start_on_stream(action, collective, group, device, results)
        if async_op:
            return work
        work.wait()
        return None
    queue = keep_for(group, "queue", _Queue)
    if async_op:
        return Work(queue.put(action, collective), results)
    with collective:
        queue.join()
        collective.check()  # a collective in flight may have failed
        action(collective)
    return None


def _start_on_stream(
    action: Action, collective: Collective, group: dist.ProcessGroup, device: torch.device, results: Tensors
) -> GpuWork:
    """Queue ``action`` on the group's own stream, which keeps the collectives of the group in order."""
    current = torch.cuda.current_stream(device)
    stream = keep_for(group, ("stream", device), lambda: torch.cuda.Stream(device))
    stream.wait_stream(current)
    with torch.cuda.stream(stream), collective:
        action(collective)
    for result in results:
        result.record_stream(stream)  # its memory is not reused earlier, even if nobody waits
    return GpuWork(action, stream, results)


class _Queue:
    """The thread that runs the asynchronous collectives of one group, in the order of the calls.

    The thread ends when nothing refers to the queue and all actions are done.
    """

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="ringlab")
        self._last: Future[None] | None = None

    def put(self, action: Action, collective: Collective) -> "Future[None]":

        def run() -> None:
            with collective:
                action(collective)

        self._last = self._thread.submit(run)
        return self._last

    def join(self) -> None:
        """Wait until all actions are done or have failed. Only the handles' ``wait`` raises an action's error."""
        if self._last is not None:
            self._last.exception()
            self._last = None
