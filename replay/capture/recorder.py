"""Record the communication calls of this process by intercepting c10d's operators and ``Work.wait``.

Until the first call with a GPU tensor, times are measured with the host's clock. From then on, they are measured with
CUDA events on the current stream of this GPU.
"""

import linecache
import os
import runpy
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from collectives.errors import failure_first
from collectives.quoting import MOST_QUOTED
from realcomm.execution.nccl import ranks_of
from realcomm.launching.failures import failing_as
from replay.capture.rank_log import RECV, SEND, UNEVEN, CallLog, NotedCall, NotedEntry
from replay.recording import Did

REDUCTIONS = ("all_reduce", "reduce", "reduce_scatter")
ASKED = {"distributed_c10d.py": "op", "_functional_collectives.py": "reduceOp"}  # the operator's argument, by file

Elements = Callable[[dict[str, Any], int], int]  # function of the named arguments and the number of ranks


class C10dOperator(NamedTuple):
    """How a c10d operator is recorded: the name of its call, its number of elements, and the source of its dtype."""

    verb: str  # a collective, a send or a receive
    elements: Elements
    tensors: str  # the argument whose first tensor has the dtype


def flatten(tensors: Any) -> Iterable[torch.Tensor]:
    """Yield the tensors in nested lists.

    >>> [len(tensor) for tensor in flatten([[torch.ones(2)], torch.ones(3)])]
    [2, 3]
    """
    if isinstance(tensors, torch.Tensor):
        yield tensors
    else:
        for tensor in tensors:
            yield from flatten(tensor)


def _numel(name: str, times_ranks: bool = False) -> Elements:
    """Return a function that counts the elements of an argument, multiplied by the ranks if ``times_ranks`` is True."""

    def count(named: dict[str, Any], ranks: int) -> int:
        numel = sum(tensor.numel() for tensor in flatten(named[name]))
        return numel * ranks if times_ranks else numel

    return count


def _one(named: dict[str, Any], ranks: int) -> int:
    return 1


OPERATORS = {
    "allreduce_": C10dOperator("all_reduce", _numel("tensors"), "tensors"),
    "allreduce_coalesced_": C10dOperator("all_reduce", _numel("tensors"), "tensors"),
    "broadcast_": C10dOperator("broadcast", _numel("tensors"), "tensors"),
    "reduce_": C10dOperator("reduce", _numel("tensors"), "tensors"),
    "allgather_": C10dOperator("all_gather", _numel("output_tensors"), "input_tensors"),
    "_allgather_base_": C10dOperator("all_gather", _numel("output_tensor"), "input_tensor"),
    "allgather_coalesced_": C10dOperator("all_gather", _numel("output_lists"), "input_list"),
    "allgather_into_tensor_coalesced_": C10dOperator("all_gather", _numel("outputs"), "inputs"),
    "reduce_scatter_": C10dOperator("reduce_scatter", _numel("input_tensors"), "output_tensors"),
    "_reduce_scatter_base_": C10dOperator("reduce_scatter", _numel("input_tensor"), "output_tensor"),
    "reduce_scatter_tensor_coalesced_": C10dOperator("reduce_scatter", _numel("inputs"), "outputs"),
    "gather_": C10dOperator("gather", _numel("input_tensors", True), "input_tensors"),
    "gather_into_tensor_": C10dOperator("gather", _numel("input_tensor", True), "input_tensor"),
    "scatter_": C10dOperator("scatter", _numel("output_tensors", True), "output_tensors"),
    "alltoall_": C10dOperator("all_to_all", _numel("input_tensors"), "input_tensors"),
    "alltoall_base_": C10dOperator("all_to_all", _numel("input"), "input"),
    "barrier": C10dOperator("barrier", _one, "tensor"),
    "monitored_barrier_": C10dOperator("barrier", _one, "tensor"),
    "send": C10dOperator("send", _numel("tensors"), "tensors"),
    "recv_": C10dOperator("recv", _numel("tensors"), "tensors"),
    "recv_any_source_": C10dOperator("recv", _numel("tensors"), "tensors"),
}


def find_operator() -> str:
    """Return the reduction operator of the collective that is being called, or "sum" if torch received none.

    The name is an argument of a calling torch function. The kernel gets a C++ object that Python cannot read.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        argument = ASKED.get(Path(frame.f_code.co_filename).name)
        if argument is not None and argument in frame.f_locals:
            operation = frame.f_locals[argument]
            name = str(getattr(operation, "op", operation)).rpartition(".")[2].lower()
            return {"avg": "mean", "premul_sum": "sum"}.get(name, name)
        frame = frame.f_back
    return "sum"


def names_of(operator: Any) -> list[str]:
    return [argument.name for argument in operator._schema.arguments]


class HostTimer:
    def now(self) -> Any:
        """Return the current time. ``seconds`` computes the differences between such times."""
        return time.perf_counter()

    def seconds(self, moments: Sequence[tuple[Any, Any]]) -> list[float]:
        return [after - before for before, after in moments]


class StreamTimer(HostTimer):
    """Measures seconds with CUDA events on a GPU's current stream, or between times of the ``HostTimer``."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def now(self) -> Any:
        event = torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(self._device))
        return event

    def seconds(self, moments: Sequence[tuple[Any, Any]]) -> list[float]:
        torch.cuda.synchronize(self._device)
        return [
            after - before if isinstance(before, float) else before.elapsed_time(after) / 1e3
            for before, after in moments
        ]


OURS = str(Path(__file__).parent)
TORCH = str(Path(torch.__file__).parent)
KEY = "BackendSelect"  # dispatch key that all calls pass, and at which no c10d operator has a kernel
BELOW = torch._C._dispatch_keyset_full_after(torch._C.DispatchKey.BackendSelect)
WAIT_INSIDE = ("_broadcast_coalesced", "_verify_params_across_processes")  # C++ functions that wait for all calls
MOST_WORKS = 4096  # maximum calls that are stored until they are awaited


def _pass_on(overload: Any, keys: Any, arguments: tuple[Any, ...]) -> Any:
    """Run an operator's original kernel without holding the interpreter lock, and return its result.

    If the lock were held, the kernel could wait for gloo's threads while they wait for the lock.
    """
    return overload.redispatch(keys & BELOW, *arguments)


class CallRecorder:
    """Records the communication calls of this process. The recorded times do not include the recording itself."""

    def __init__(self, title: str, rank: int, world_size: int) -> None:
        self.log = CallLog(rank, world_size, title, "gloo")
        self.clock: HostTimer = HostTimer()
        self._library = torch.library.Library("c10d", "IMPL")
        self._functional = torch.library.Library("_c10d_functional", "IMPL")
        self._groups: dict[str, int] = {}
        self._locations: dict[tuple[str, int], int] = {}
        self._works: dict[int, tuple[Any, int]] = {}  # by id of the work: the work, so that its id stays, and its call
        self._by_storage: dict[int, int] = {}  # calls by buffer address, for asynchronous tensors without a work
        self._moments: list[tuple[Any, Any, Any, Any]] = []  # times of the rank's own computing and its calls
        self._entries: list[tuple[Did, int]] = []
        self._last: Any = None
        self._draining = False
        self._wait = dist.Work.wait

    def install(self) -> None:
        """Intercept calls and waits. The clock starts when the process initializes its process group."""
        for name, operator in OPERATORS.items():
            self._replace(name, operator)
        recorder, join = self, dist.init_process_group

        def wait(work: Any, *arguments: Any, **named: Any) -> Any:
            return recorder._on_wait(work, lambda: recorder._wait(work, *arguments, **named))

        def init_process_group(*arguments: Any, **named: Any) -> None:
            join(*arguments, **named)
            recorder.begin()

        for name in WAIT_INSIDE:
            setattr(dist, name, self._waiting_inside(getattr(dist, name)))
        dist.Work.wait = wait  # type: ignore[method-assign, assignment]
        dist.init_process_group = dist.distributed_c10d.init_process_group = init_process_group
        self._replace_functional_wait()

    def begin(self) -> None:
        if self._last is None:
            self._last = self.clock.now()

    def _find_gpu(self, tensors: Any) -> torch.device | None:
        """Return the GPU of ``tensors``. Return None if there is none, or a GPU already measures the times."""
        device = next((tensor.device for tensor in flatten(tensors) if tensor.is_cuda), None)
        if device is None or isinstance(self.clock, StreamTimer):
            return None
        torch.cuda.synchronize(device)  # time before it is measured by the host's clock
        return device

    def _replace(self, name: str, operator: C10dOperator) -> None:
        overload = getattr(torch.ops.c10d, name).default
        names = names_of(overload)

        def noted(keys: Any, *arguments: Any) -> Any:
            named = dict(zip(names, arguments, strict=False))
            return self._on_call(operator, named, lambda: _pass_on(overload, keys, arguments))

        self._library.impl(name, noted, KEY, with_keyset=True)

    def _waiting_inside(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap a torch function that makes calls and waits for them in C++, so that the waits are recorded."""

        def noted(*arguments: Any, **named: Any) -> Any:
            first = len(self.log.calls)
            result = function(*arguments, **named)
            for number in range(first, len(self.log.calls)):
                now = self.clock.now()
                self._entries.append((Did.WAIT, number))
                self._moments.append((self._last, self._last, self._last, now))
                self._last = now
            self._works = {at: work for at, work in self._works.items() if work[1] < first}
            return result

        return noted

    def _replace_functional_wait(self) -> None:
        overload = torch.ops._c10d_functional.wait_tensor.default

        def noted(keys: Any, tensor: Any) -> Any:
            number = self._by_storage.pop(tensor.untyped_storage().data_ptr(), -1)
            if number < 0:
                return _pass_on(overload, keys, (tensor,))
            return self._timed(Did.WAIT, number, lambda: _pass_on(overload, keys, (tensor,)))

        self._functional.impl("wait_tensor", noted, KEY, with_keyset=True)

    def _on_call(self, operator: C10dOperator, named: dict[str, Any], call: Callable[[], Any]) -> Any:
        self.begin()
        gpu = None if operator.verb == "barrier" else self._find_gpu(named[operator.tensors])  # torch chose that one
        computed_at = self.clock.now()
        if gpu is not None:
            self.clock = StreamTimer(gpu)
            if dist.ProcessGroup.unbox(named["process_group"])._get_backend(gpu).name() == "nccl":
                self.log.backend = "nccl"
        number = self._note(operator, named)
        result = self._timed(Did.POST, number, call, computed_at)
        work = result[-1] if isinstance(result, tuple) and result else result
        if not isinstance(work, torch.ScriptObject):
            self.log.calls[number] = self.log.calls[number]._replace(is_sync=True)
        else:
            torch_work = dist.Work.unbox(work)
            self._works[id(torch_work)] = torch_work, number
            if len(self._works) > MOST_WORKS:
                self._works.pop(next(iter(self._works)))
            if named.get("async_op", True) and torch._C._current_graph_task_id() != -1:
                self._drain_later()
        for tensor in flatten(named[operator.tensors]):
            self._by_storage[tensor.untyped_storage().data_ptr()] = number
        self._last = self.clock.now()
        return result

    def _timed(self, did: Did, number: int, call: Callable[[], Any], computed_at: Any = None) -> Any:
        """Run ``call`` and record its duration. ``computed_at`` is when the preceding computing ended. Default: now."""
        begun = self.clock.now()
        result = call()
        ended = self.clock.now()
        self._entries.append((did, number))
        self._moments.append((self._last, begun if computed_at is None else computed_at, begun, ended))
        self._last = self.clock.now()
        return result

    def _on_wait(self, work: Any, wait: Callable[[], Any]) -> Any:
        work_call = self._works.pop(id(work), None)
        if work_call is None:
            return wait()
        result = self._timed(Did.WAIT, work_call[1], wait)
        self._find_source(work, work_call[1])
        return result

    def _find_source(self, work: Any, number: int) -> None:
        """Store the sender of a completed receive that accepted any sender."""
        call = self.log.calls[number]
        if call.what == RECV and call.peer < 0:
            ranks = self.log.groups[call.group][1]
            self.log.calls[number] = call._replace(peer=ranks[work._source_rank()])

    def _drain_later(self) -> None:
        """Queue a wait for pending calls at the end of backward, where DistributedDataParallel waits inside torch."""
        if not self._draining:
            self._draining = True
            torch.autograd.Variable._execution_engine.queue_callback(self._drain)

    def _drain(self) -> None:
        self._draining = False
        for work, number in list(self._works.values()):
            if not self.log.calls[number].is_sync:
                self._on_wait(work, lambda work=work: self._wait(work))  # type: ignore[misc]

    def _note(self, operator: C10dOperator, named: dict[str, Any]) -> int:
        group = dist.ProcessGroup.unbox(named["process_group"])
        at = self._group(group)
        ranks = self.log.groups[at][1]
        tensor = next(iter(flatten(named[operator.tensors])), None)
        peer = named.get("dst", named.get("src", -1))
        if named.get("input_split_sizes"):
            self.log.notes.append(UNEVEN)
        self.log.calls.append(
            NotedCall(
                what=operator.verb,
                group=at,
                elements=operator.elements(named, len(ranks)),
                itemsize=4 if tensor is None else tensor.element_size(),
                dtype="float32" if tensor is None else str(tensor.dtype).removeprefix("torch."),
                op=find_operator() if operator.verb in REDUCTIONS else "sum",
                root=named.get("root_rank", 0),
                peer=ranks[peer] if peer >= 0 and operator.verb in (SEND, RECV) else -1,
                tag=named.get("tag", 0),
                location=self._location(),
                is_sync=not named.get("async_op", True),
            )
        )
        return len(self.log.calls) - 1

    def _group(self, group: Any) -> int:
        name = str(group.group_name)
        if name not in self._groups:
            self._groups[name] = len(self.log.groups)
            self.log.groups.append((name, tuple(ranks_of(group))))
        return self._groups[name]

    def _location(self) -> int:
        """Return the log's index of the innermost calling line outside torch and Ringlab, or -1 if there is none."""
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and frame.f_code.co_filename.startswith((OURS, TORCH, "<")):
            frame = frame.f_back
        if frame is None:
            return -1
        key = frame.f_code.co_filename, frame.f_lineno
        if key not in self._locations:
            self._locations[key] = len(self.log.locations)
            text = linecache.getline(*key).strip()[:MOST_QUOTED]
            self.log.locations.append((Path(key[0]).name, key[1], text if text.isprintable() else ""))
        return self._locations[key]

    def finish(self) -> CallLog:
        """Return the log. The time since the last call counts as computing, so call this at the program's end."""
        if self._last is None:
            return self.log
        end = self.clock.now()
        pairs = [(last, computed_at) for last, computed_at, _, _ in self._moments]
        pairs += [(begun, ended) for _, _, begun, ended in self._moments]
        *seconds, tail = self.clock.seconds([*pairs, (self._last, end)])
        number = len(self._moments)
        self.log.tail = max(0.0, tail)
        self.log.entries = [
            NotedEntry(int(did), call, max(0.0, computing), max(0.0, took))
            for (did, call), computing, took in zip(self._entries, seconds[:number], seconds[number:], strict=True)
        ]
        self.log.notes = list(dict.fromkeys(self.log.notes))
        return self.log


def record_script(script: Path, arguments: Sequence[str], folder: Path, *, as_module: bool = False) -> None:
    """Run a script as ``__main__``, and write this rank's log to ``folder``. If ``as_module`` is True, run a module.

    Raise RankFailed if the program raises an exception (after writing the log), or if the log cannot be written.
    """
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    title = " ".join([script.name, *arguments])[:200]
    recorder = CallRecorder(title if title.isprintable() else script.name, rank, world_size)
    recorder.install()
    sys.argv = [str(script), *arguments]
    with failure_first(), failing_as(rank, "writing its recording"):
        try:
            with failing_as(rank, f"running {recorder.log.title}"):
                _execute(script, as_module)
        finally:
            recorder.finish().write(folder)


def _execute(script: Path, as_module: bool) -> None:
    try:
        if as_module:
            sys.path.insert(0, str(Path.cwd()))
            runpy.run_module(str(script), run_name="__main__", alter_sys=True)
        else:
            sys.path.insert(0, str(script.parent.absolute()))
            runpy.run_path(str(script), run_name="__main__")
    except SystemExit as end:
        if end.code not in (None, 0):
            raise
