"""Execute any rank program on a tensor with torch.distributed's point-to-point calls.

``collectives.step`` defines what a step of a program does. Receives are posted before sends. Otherwise gloo's
receive-ready notification would queue behind outgoing data, and an exchange would take twice as long.
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
from realcomm.execution.events import Event, EventRecorder
from realcomm.execution.gpu_progress import StepMark, StepMarks
from realcomm.execution.group_memory import GroupReference, Recent, keep_for, refer
from realcomm.execution.nccl import as_bytes, connect, make_communicators, needs_groups, post_group, timeout_of
from realcomm.launching.group import group_or_default
from realcomm.launching.status import COLLECTIVE_BYTES, own_slot, padded

# (target, source): reduce source into target
COMBINE: dict[str, Callable[[torch.Tensor, torch.Tensor], object]] = {
    "sum": torch.Tensor.add_,
    "mean": torch.Tensor.add_,  # followed by one division at the end
    "min": lambda target, source: torch.minimum(target, source, out=target),
    "max": lambda target, source: torch.maximum(target, source, out=target),
    "product": torch.Tensor.mul_,
}

TAG = 1 << 24  # first tag of an executor's messages, far from users' tags
TAGS = (1 << 31) - TAG  # gloo's tags have 31 bits


def execute(
    algorithm: str | Algorithm,
    tensor: torch.Tensor,
    op: str = "sum",
    root: int = 0,
    group: dist.ProcessGroup | None = None,
    record: list[Event] | None = None,
) -> None:
    """Run a collective on ``tensor``, in place.

    All ranks of ``group`` (default: all ranks) must call this with tensors of equal length and dtype. ``algorithm`` is
    an Algorithm or its name. ``root`` is the root's rank in the group. If ``record`` is a list, this rank's events are
    appended to it. Raise InputError for a tensor that is not contiguous or that ``op`` cannot reduce. With two ranks:

    >>> tensor = torch.tensor([1.0, 2.0])
    >>> execute("all_reduce/ring", tensor)  # doctest: +SKIP
    >>> tensor  # doctest: +SKIP
    tensor([2., 4.])
    """
    algorithm = find_algorithm(algorithm)
    _check_tensor(tensor)
    if not isinstance(group, dist.ProcessGroup | None):
        raise InputError(
            f"group must be a ProcessGroup from torch.distributed.new_group, or None for all ranks, not {group!r}"
        )
    if not isinstance(record, list | None):
        raise InputError(f"record must be a list or None, not {record!r}")
    rank, world_size = dist.get_rank(group), dist.get_world_size(group)
    call = CollectiveCall(algorithm, tensor.numel(), dtype_name(tensor.dtype), op, root)
    whole_group = group_or_default(group)
    # asynchronous calls have separate executors
    executors = keep_for(whole_group, "executors of execute", Recent[Executor])
    make = partial(Executor, call, rank, world_size, group, tensor.device)
    executors.find((call, tensor.device), make).run(tensor, record)


class Executor:
    """Runs one rank's program of a collective on tensors of the same length and dtype.

    Scratch and staging memory is allocated once. ``bytes_sent`` counts the bytes of all messages that this rank has
    posted. With two ranks:

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
        """Allocate memory. On a GPU, also connect to all peers, so all ranks of the group must call this together.

        Raise InputError if the operator is unknown or cannot reduce the dtype, or if the algorithm does not support the
        length.
        """
        if not isinstance(call, CollectiveCall):
            raise InputError(f"call must be a collectives.call.CollectiveCall, not {call!r}")
        algorithm, n, op = call.algorithm, call.elements, call.op
        self.call, self.rank, self.world_size = call, rank, world_size
        self.dtype: torch.dtype = getattr(torch, call.dtype)
        if op not in COMBINE:
            raise InputError(f"unknown op {op!r}; use one of {', '.join(OPS)}")
        check_applies(algorithm, op=op != "sum", root=call.root != 0)
        if algorithm.spec.reduces:
            _check_reduces(op, self.dtype)
        check_length(algorithm, n, world_size)
        self.bytes_sent = 0
        self._device = torch.device(device)
        self._is_grouped = grouped = needs_groups(self._device)
        self._builder = PipelineBuilder[torch.Tensor](call, rank, world_size, self._allocate, grouped)
        whole_group = group_or_default(group)
        self._world_ranks = dist.get_process_group_ranks(whole_group)  # for messages about ranks
        self._groups: tuple[GroupReference, ...] = (refer(whole_group),)  # one for each channel if messages are grouped
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
        self._marks = None
        if self._device.type == "cuda":
            self._marks = StepMarks(self._device, self._label, timeout_of(whole_group, self._device))

    def run(
        self, tensor: torch.Tensor, record: list[Event] | None = None, collective: Collective | None = None
    ) -> None:
        """Run the program on ``tensor``, in place, and append its events to ``record``.

        ``collective`` is the group's current collective, whose context the caller has entered. Default: a new
        collective of the group. Raise InputError if the tensor is not contiguous or has another length or dtype than
        the call. Raise torch.distributed's RuntimeError if a peer is lost; a note then names the step and the peer.
        Also raise RuntimeError if an earlier collective of the group has failed.
        """
        if tensor is not self._tensor() or tensor.data_ptr() != self._address:  # ``tensor.data`` may have been replaced
            self._bind(tensor)
        context = self._sequence.begin(self.call.algorithm.full_name) if collective is None else nullcontext(collective)
        with context as current:
            self._run(tensor, record, current.number)

    def _run(self, tensor: torch.Tensor, record: list[Event] | None, number: int) -> None:
        chains = self._builder.chains
        self._tag = TAG + (self._fingerprint + number * chains) % (TAGS - chains)
        recorder = None if record is None else EventRecorder(self._device)
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

    def settle(self, tensor: torch.Tensor) -> None:
        """Do nothing: ``run`` has already written the result to ``tensor``."""

    @cached_property
    def buffer(self) -> torch.Tensor:
        """A tensor of the call's length for callers whose data is not contiguous or must not change."""
        return self._allocate(self.call.elements)

    def _allocate(self, elements: int) -> torch.Tensor:
        return torch.empty(elements, dtype=self.dtype, device=self._device)

    def _bind(self, tensor: torch.Tensor) -> None:
        """Build the pipeline for ``tensor``, and cache it until ``tensor`` is freed or another tensor is bound."""
        n = self.call.elements
        _check_tensor(tensor)
        if tensor.numel() != n or tensor.dtype != self.dtype:
            raise InputError(f"tensor must have {n} elements of {self.dtype}, not {tensor.numel()} of {tensor.dtype}")
        if not tensor.is_contiguous():
            raise InputError(
                f"tensor must be contiguous (shape {list(tensor.shape)}, strides {tensor.stride()}); call "
                "contiguous() first"
            )
        if tensor.is_conj() or tensor.is_neg():  # its memory contains the values before conjugation or negation
            raise InputError("tensor is a lazily conjugated or negated view; call resolve_conj() first")
        flat = tensor.detach().as_strided((n,), (1,))  # a view of one element would keep any stride of the tensor
        self._pipeline = self._builder.build(flat)
        if self._is_grouped:
            for step in self._pipeline.steps:
                for message in (*step.receives, *step.step.sends):
                    message.elements_list = as_bytes(message.elements)
        self._tensor, self._address = weakref.ref(tensor, self._release), tensor.data_ptr()

    def _release(self, gone: object) -> None:
        if self._tensor is gone:
            self._pipeline, self._tensor = Pipeline[torch.Tensor]([], []), _none

    def _send(self, elements: list[torch.Tensor], peer: int, tag: int) -> dist.Work:
        return self._groups[0]().send(elements, peer, tag)

    def _receive(self, elements: list[torch.Tensor], peer: int, tag: int) -> dist.Work:
        return self._groups[0]().recv(elements, peer, tag)

    def _post_each(self, step: SliceStep[torch.Tensor], recorder: EventRecorder | None) -> None:
        """Post the messages of a step one by one. Then do the reductions and copies that need no message."""
        send, receive, tag = self._send, self._receive, self._tag + step.chain
        for message in step.receives:
            message.work = receive(message.elements_list, message.peer, tag)
        if recorder is not None:  # first, because a message may arrive before the post returns
            recorder.post((*step.receives, *step.step.sends, *step.early_receives))
        for message in step.step.sends:
            self.bytes_sent += message.nbytes
            message.work = send(message.elements_list, message.peer, tag)
        for message in step.early_receives:
            message.work = receive(message.elements_list, message.peer, tag)
        self._write_early(step, recorder)

    def _post_grouped(self, step: SliceStep[torch.Tensor], recorder: EventRecorder | None) -> None:
        """Post the messages of a step as one NCCL group. Then do the reductions and copies that need no message."""
        if recorder is not None:
            recorder.post((*step.receives, *step.step.sends))
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
        """Wait for a step's messages, and reduce or copy each when it arrives. Then do the remaining writes."""
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
        begin = 0.0 if recorder is None else recorder.now()
        buffer[self._divided].div_(self.world_size)
        if recorder is not None:
            write = Write(reduce(0, into=0, count=self._builder.chunks), buffer, buffer, combines=True)
            recorder.add_local(0, max(map(len, self._builder.programs)), write, begin)


def dtype_name(dtype: torch.dtype) -> str:
    """Return the name of a dtype without the prefix ``torch.``, as a CollectiveCall stores it.

    >>> dtype_name(torch.float32)
    'float32'
    """
    return str(dtype).removeprefix("torch.")


def _check_tensor(tensor: object) -> None:
    if not isinstance(tensor, torch.Tensor):
        raise InputError(f"tensor must be a torch.Tensor, not {tensor!r}")


def _check_reduces(op: str, dtype: torch.dtype) -> None:
    if op == "mean" and not (dtype.is_floating_point or dtype.is_complex):
        raise InputError(f"op 'mean' requires a floating-point dtype, not {dtype_name(dtype)!r}")
    try:
        COMBINE[op](torch.zeros(1, dtype=dtype), torch.zeros(1, dtype=dtype))
    except (RuntimeError, TypeError) as error:
        raise InputError(f"op {op!r} cannot reduce dtype {dtype_name(dtype)!r}: {error}") from error


def _none() -> None:
    return None
