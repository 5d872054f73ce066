"""The executor: any rank program on a real tensor, over torch.distributed's point-to-point calls.

A step keeps the contract of ``collectives.step``. Receives are posted before sends: gloo's notification that a receiver
is ready otherwise queues behind the outgoing data on the same connection, which doubles the time of an exchange.
"""

import weakref
from collections.abc import Callable
from contextlib import nullcontext
from functools import cached_property, partial
from zlib import crc32

import torch
import torch.distributed as dist

from collectives.call import CollectiveCall, check_length, reduced_slice
from collectives.catalogue import find_algorithm
from collectives.declaration import Algorithm, check_applies
from collectives.errors import InputError
from collectives.pipeline.bound_steps import Write
from collectives.pipeline.pipeline import Pipeline, PipelineBuilder, SliceStep
from collectives.spec import OPS
from collectives.step import reduce
from realcomm.execution.collective_sequence import Collective, sequence_of
from realcomm.execution.events import EXECUTION, Event, EventRecorder
from realcomm.execution.gpu_progress import StepMark, StepMarks
from realcomm.execution.group_memory import GroupReference, Recent, keep_for, refer
from realcomm.execution.nccl import as_bytes, connect, make_communicators, needs_groups, post_group, timeout_of
from realcomm.launching.status import COLLECTIVE_BYTES, own_slot, padded, tell_by

# (target, source): reduce source into target
COMBINE: dict[str, Callable[[torch.Tensor, torch.Tensor], object]] = {
    "sum": torch.Tensor.add_,
    "mean": torch.Tensor.add_,  # divided once, at the end
    "min": lambda target, source: torch.minimum(target, source, out=target),
    "max": lambda target, source: torch.maximum(target, source, out=target),
    "product": torch.Tensor.mul_,
}

TAG = 1 << 24  # the first of our messages' tags: far from those that a user's own messages have
TAGS = (1 << 31) - TAG  # gloo's tags have 31 bits


def execute(
    algorithm: str | Algorithm,
    tensor: torch.Tensor,
    op: str = "sum",
    root: int = 0,
    group: dist.ProcessGroup | None = None,
    record: list[Event] | None = None,
) -> None:
    """Run a collective on ``tensor``, in place. All ranks of ``group`` call this with tensors of one length and type.

    The algorithm may be given by name. ``root`` is a rank of the group. The events of this rank are appended to
    ``record``. Raise InputError for a tensor that is not contiguous or that ``op`` cannot reduce. With two ranks:

    >>> tensor = torch.tensor([1.0, 2.0])
    >>> execute("all_reduce/ring", tensor)  # doctest: +SKIP
    >>> tensor  # doctest: +SKIP
    tensor([2., 4.])
    """
    algorithm = find_algorithm(algorithm)
    _check_tensor(tensor)
    if not isinstance(group, dist.ProcessGroup | None):
        raise InputError(f"group is {group!r}; give what torch.distributed.new_group made, or None for all ranks")
    if not isinstance(record, list | None):
        raise InputError(f"record is {record!r}; give a list that the events are appended to")
    rank, world_size = dist.get_rank(group), dist.get_world_size(group)
    call = CollectiveCall(algorithm, tensor.numel(), dtype_name(tensor.dtype), op, root)
    whole_group = group or dist.group.WORLD
    assert whole_group is not None
    kept = keep_for(whole_group, "executors of execute", Recent[Executor])  # asynchronous calls have others
    make = partial(Executor, call, rank, world_size, group, tensor.device)
    kept.find((call, tensor.device), make).run(tensor, record)


class Executor:
    """One rank's program of one call, ready to run many times on tensors of the requested length and type.

    Scratch and staging are allocated once; the tensors of all steps are made anew only if another tensor comes.
    ``bytes_sent`` counts the bytes of all messages that this rank has posted. With two ranks:

    >>> call = CollectiveCall(find_algorithm("all_reduce/ring"), elements=2)  # doctest: +SKIP
    >>> executor = Executor(call, rank, world_size)  # doctest: +SKIP
    >>> executor.run(torch.tensor([1.0, 2.0]))  # doctest: +SKIP
    >>> executor.bytes_sent  # doctest: +SKIP
    8
    """

    def __init__(
        self,
        call: CollectiveCall,
        rank: int,
        world_size: int,
        group: dist.ProcessGroup | None = None,
        device: torch.device | str = "cpu",
    ) -> None:
        """Allocate memory and, on a GPU, connect to all peers: there all ranks of the group must call this together.

        Raise InputError for an unknown operator, one that cannot reduce the type, and a length that the algorithm
        cannot work on.
        """
        if not isinstance(call, CollectiveCall):
            raise InputError(f"call is {call!r}; give a collectives.call.CollectiveCall")
        algorithm, n, op = call.algorithm, call.elements, call.op
        self.call, self.rank, self.world_size = call, rank, world_size
        self.dtype: torch.dtype = getattr(torch, call.dtype)
        _check_op(op)
        check_applies(algorithm, op=op != "sum", root=call.root != 0)
        if algorithm.spec.reduces:
            _check_reduces(op, self.dtype)
        check_length(algorithm, n, world_size)
        self.bytes_sent = 0
        self._device = torch.device(device)
        self._is_grouped = grouped = needs_groups(self._device)
        self._builder = PipelineBuilder[torch.Tensor](call, rank, world_size, self._allocate, grouped)
        whole_group = group or dist.group.WORLD
        assert whole_group is not None
        self._world_ranks = dist.get_process_group_ranks(whole_group)  # by which messages name ranks
        self._groups: tuple[GroupReference, ...] = (refer(whole_group),)  # one a channel where messages are grouped
        self._sequence = sequence_of(whole_group)
        if grouped:
            communicators = make_communicators(whole_group, len(self._builder.programs), self._device)
            connect(communicators, self._builder.programs, self._device)
            self._groups = tuple(map(refer, communicators))
        self._post = self._post_grouped if grouped else self._post_each
        self._combine = COMBINE[op]
        self._divided = reduced_slice(algorithm.spec, rank, world_size, call.root, n)
        self._divides = op == "mean" and self._divided.stop > self._divided.start
        self._label = padded(algorithm.full_name, COLLECTIVE_BYTES)
        self._fingerprint = crc32(repr((algorithm.full_name, n, call.dtype, op, call.root)).encode())
        self._tag = TAG
        self._tensor: Callable[[], torch.Tensor | None] = _none
        self._address = 0
        self._pipeline = Pipeline[torch.Tensor]([], [])
        self._runs, self._is_watched = 0, False
        self._marks = None
        if self._device.type == "cuda":
            self._marks = StepMarks(self._device, self._label, timeout_of(whole_group, self._device))

    def watch(self) -> None:
        """Have this rank tell what it has done so far if the run breaks; on a GPU its status alone names the step."""
        self._is_watched = self._device.type != "cuda"

    def run(
        self, tensor: torch.Tensor, record: list[Event] | None = None, collective: Collective | None = None
    ) -> None:
        """Run the program on ``tensor``, in place, and append its events to ``record``.

        This is the group's next collective, or ``collective`` inside its context. Raise InputError for another length
        or type, or a tensor that is not contiguous. Raise RuntimeError of torch.distributed when a peer is lost, with a
        note of the step and the peer that this rank waited for, and when an earlier collective of the group has failed.
        """
        if tensor is not self._tensor() or tensor.data_ptr() != self._address:  # ``data`` may have been set anew
            self._bind(tensor)
        own = self._sequence.begin(self.call.algorithm.full_name) if collective is None else nullcontext(collective)
        with own as current:
            self._run(tensor, record, current.number)

    def _run(self, tensor: torch.Tensor, record: list[Event] | None, number: int) -> None:
        chains = self._builder.chains
        self._tag = TAG + (self._fingerprint + number * chains) % (TAGS - chains)
        self._runs += 1
        recorder = None
        if record is not None or self._is_watched:
            recorder = EventRecorder(self._device, self._runs, self.call.elements)
        if self._is_watched and recorder is not None:
            tell_by(EXECUTION, recorder.account)
        if self._marks is not None:
            self._marks.begin()
        wait = own_slot().wait
        with wait.noted_in_errors(self._world_ranks[self.rank], self._label):
            for step in self._pipeline.first:
                self._post(step, recorder)
            for step in self._pipeline.steps:
                self._complete(step, wait.location, recorder)
                if step.next is not None:
                    self._post(step.next, recorder)
        if self._divides:
            self._divide(tensor.detach().view(-1), recorder)
        if record is not None and recorder is not None:
            record += recorder.events()

    @cached_property
    def buffer(self) -> torch.Tensor:
        """A tensor of the executor's own to run on, for data that is not contiguous or must not be changed."""
        return self._allocate(self.call.elements)

    def _allocate(self, elements: int) -> torch.Tensor:
        return torch.empty(elements, dtype=self.dtype, device=self._device)

    def _bind(self, tensor: torch.Tensor) -> None:
        """Build the pipeline on ``tensor`` and keep it for as long as the tensor lives."""
        n = self.call.elements
        _check_tensor(tensor)
        if tensor.numel() != n or tensor.dtype != self.dtype:
            raise InputError(
                f"a tensor of {tensor.numel()} {tensor.dtype} was given where {n} {self.dtype} were announced"
            )
        if not tensor.is_contiguous():
            raise InputError(f"a tensor of shape {list(tensor.shape)} and strides {tensor.stride()} is not contiguous")
        if tensor.is_conj() or tensor.is_neg():  # its memory holds other values
            raise InputError("a tensor that is conjugated or negated only when it is read; resolve_conj() it before")
        flat = tensor.detach().as_strided((n,), (1,))  # a view of one element would keep any stride of the tensor
        self._pipeline = self._builder.build(flat)
        if self._is_grouped:
            for step in self._pipeline.steps:
                for message in (*step.receives, *step.step.sends):
                    message.elements_list = as_bytes(message.elements)
        self._tensor, self._address = weakref.ref(tensor, self._release), tensor.data_ptr()

    def _release(self, gone: object) -> None:
        """Drop the pipeline, and with it the memory of a tensor that nothing else refers to any more."""
        if self._tensor is gone:
            self._pipeline, self._tensor = Pipeline[torch.Tensor]([], []), _none

    def _send(self, elements: list[torch.Tensor], peer: int, tag: int) -> dist.Work:
        return self._groups[0]().send(elements, peer, tag)

    def _receive(self, elements: list[torch.Tensor], peer: int, tag: int) -> dist.Work:
        return self._groups[0]().recv(elements, peer, tag)

    def _post_each(self, step: SliceStep[torch.Tensor], recorder: EventRecorder | None) -> None:
        """Post the messages of a step one by one, and do what is to be done while they are under way."""
        send, receive, tag = self._send, self._receive, self._tag + step.chain
        for message in step.receives:
            message.work = receive(message.elements_list, message.peer, tag)
        if recorder is not None:  # before they are posted: a message may arrive sooner than posting it returns
            recorder.post(step.channel, (*step.receives, *step.step.sends, *step.early_receives))
        for message in step.step.sends:
            self.bytes_sent += message.nbytes
            message.work = send(message.elements_list, message.peer, tag)
        for message in step.early_receives:
            message.work = receive(message.elements_list, message.peer, tag)
        self._write_early(step, recorder)

    def _post_grouped(self, step: SliceStep[torch.Tensor], recorder: EventRecorder | None) -> None:
        """Post the messages of a step as one group, for NCCL, and do what is to be done while they are under way."""
        if recorder is not None:
            recorder.post(step.channel, (*step.receives, *step.step.sends))
        receives = [(message.peer, message.elements_list) for message in step.receives]
        sends = [(message.peer, message.elements_list) for message in step.step.sends]
        work = post_group(self._groups[step.channel](), receives, sends, self._device)
        for message in (*step.receives, *step.step.sends):
            message.work = work
        self.bytes_sent += sum(message.nbytes for message in step.step.sends)
        self._write_early(step, recorder)

    def _write_early(self, step: SliceStep[torch.Tensor], recorder: EventRecorder | None) -> None:
        for source, saved in step.step.saves:
            saved.copy_(source)
        for write in step.step.writes:
            self._write(write, step, recorder)

    def _complete(self, step: SliceStep[torch.Tensor], waits: memoryview, recorder: EventRecorder | None) -> None:
        """Wait for a step's messages, writing each when it has come, and do the writes that had to wait for all."""
        waits[0] = step.step.number
        for message in step.step.receives:
            waits[1] = self._world_ranks[message.peer]
            message.work.wait()
            if recorder is not None:
                recorder.add_message(step.channel, message)
            if message.write is not None:
                self._write(message.write, step, recorder)
        for message in step.due_sends:
            waits[1] = self._world_ranks[message.peer]
            message.work.wait()
            if recorder is not None:
                recorder.add_message(step.channel, message)
        if self._marks is not None and (step.step.receives or step.due_sends):
            self._marks.add(StepMark(step.channel, waits[0], waits[1]))
        for write in step.step.late_writes:
            self._write(write, step, recorder)

    def _write(self, write: Write[torch.Tensor], step: SliceStep[torch.Tensor], recorder: EventRecorder | None) -> None:
        begin = 0.0 if recorder is None else recorder.now()
        if write.combines:
            self._combine(write.target, write.source)
        else:
            write.target.copy_(write.source)
        if recorder is not None:
            recorder.add_local(step.channel, step.step.number, write, begin)

    def _divide(self, buffer: torch.Tensor, recorder: EventRecorder | None) -> None:
        """Turn the sum into the mean. It is recorded as a reduction of the whole buffer, in a step after the last."""
        begin = 0.0 if recorder is None else recorder.now()
        buffer[self._divided].div_(self.world_size)
        if recorder is not None:
            whole = Write(reduce(0, into=0, count=self._builder.chunks), buffer, buffer, combines=True)
            recorder.add_local(0, max(map(len, self._builder.programs)), whole, begin)


def dtype_name(dtype: torch.dtype) -> str:
    """Return the name of a type as a CollectiveCall has it.

    >>> dtype_name(torch.float32)
    'float32'
    """
    return str(dtype).removeprefix("torch.")


def _check_tensor(tensor: object) -> None:
    if not isinstance(tensor, torch.Tensor):
        raise InputError(f"tensor is {tensor!r}; give a torch.Tensor")


def _check_op(op: str) -> None:
    if op not in COMBINE:
        raise InputError(f"op {op!r} is not known; there are {', '.join(OPS)}")


def _check_reduces(op: str, dtype: torch.dtype) -> None:
    """Raise InputError unless torch can reduce elements of ``dtype`` with ``op``, which is known."""
    if op == "mean" and not (dtype.is_floating_point or dtype.is_complex):
        raise InputError(f"op 'mean' needs a floating dtype, not {dtype_name(dtype)!r}")
    try:
        COMBINE[op](torch.zeros(1, dtype=dtype), torch.zeros(1, dtype=dtype))
    except (RuntimeError, TypeError) as error:
        raise InputError(f"op {op!r} cannot reduce dtype {dtype_name(dtype)!r}: {error}") from error


def _none() -> None:
    return None
