"""The executor: any rank program on a real tensor, over torch.distributed's point-to-point calls.

A step keeps the contract of ``collectives.step``. Receives are posted before sends: gloo's notice that a receiver is
ready otherwise queues behind the outgoing data on the same connection, which doubles the time of an exchange.
"""

import weakref
from collections.abc import Callable
from functools import cached_property

import torch
import torch.distributed as dist

from collectives.declaration import Algorithm
from collectives.elements import OPS
from collectives.errors import InputError
from collectives.lengths import check_length
from collectives.request import Request
from collectives.step import reduce
from realcomm.execution.events import Event, EventRecorder
from realcomm.execution.memory import Landing
from realcomm.execution.nccl import communicators, connect, posted_together, posts_together
from realcomm.execution.pipeline import Arrangement, Pipeline, Turn
from realcomm.launching.status import COLLECTIVE_BYTES, NOT_WAITING, own_slot, padded

# (target, incoming): target holds both afterwards
COMBINE: dict[str, Callable[[torch.Tensor, torch.Tensor], object]] = {
    "sum": torch.Tensor.add_,
    "mean": torch.Tensor.add_,  # divided once, at the end
    "min": lambda target, incoming: torch.minimum(target, incoming, out=target),
    "max": lambda target, incoming: torch.maximum(target, incoming, out=target),
    "product": torch.Tensor.mul_,
}

TAG = 1 << 24  # the first of ours: far from those that a user's own messages have


def execute(
    algorithm: Algorithm,
    tensor: torch.Tensor,
    op: str = "sum",
    root: int = 0,
    group: dist.ProcessGroup | None = None,
    record: list[Event] | None = None,
) -> None:
    """``tensor``, of the same length on every rank of ``group``, holds what the collective promises this rank.

    Raises InputError for a tensor that is not contiguous, or that ``op`` cannot reduce where it must.
    """
    rank, world_size = dist.get_rank(group), dist.get_world_size(group)
    dtype = str(tensor.dtype).removeprefix("torch.")
    request = Request(algorithm, tensor.numel(), dtype, op, root)
    Executor(request, rank, world_size, group, tensor.device).run(tensor, record)


class Executor:
    """One rank's part of one collective on buffers of ``n`` elements, ready to run many times.

    Scratch and staging are allocated once; slices are resolved once, as long as the same tensor comes again.
    ``bytes_sent`` counts what this rank has handed over to be sent.
    """

    def __init__(
        self,
        request: Request,
        rank: int,
        world_size: int,
        group: dist.ProcessGroup | None = None,
        device: torch.device | str = "cpu",
    ) -> None:
        """On a GPU connections to peers, and a communicator for each channel, are made: all ranks must come here.

        Raises InputError for an ``op`` that is not known or, in a reduction, cannot reduce ``dtype``, and for a length
        that the algorithm cannot work on.
        """
        algorithm, n, op = request.algorithm, request.elements, request.op
        self.rank, self.world_size, self.n, self.dtype = rank, world_size, n, getattr(torch, request.dtype)
        check_known(op)
        if algorithm.spec.reduces:
            check_reduces(op, self.dtype)
        check_length(algorithm, n, world_size)
        self.bytes_sent = 0
        self._device = torch.device(device)
        together = posts_together(self._device)
        self._arrangement = Arrangement(
            algorithm, rank, world_size, request.root, n, self.dtype, self._device, together
        )
        whole = group or dist.group.WORLD
        assert whole is not None
        self._groups: tuple[dist.ProcessGroup, ...] = ()
        if together:
            self._groups = communicators(whole, len(self._arrangement.programs), self._device)
            connect(self._groups, self._arrangement.programs, self._device)
        self._send, self._receive = whole.send, whole.recv
        self._post = self._post_together if together else self._post_each
        self._combine = COMBINE[op]
        self._divided = _parts(algorithm.spec.result(rank, world_size, request.root), n, world_size)
        self._divides = op == "mean" and algorithm.spec.reduces and self._divided.stop > self._divided.start
        self._label = padded(algorithm.full_name, COLLECTIVE_BYTES)
        self._tensor: Callable[[], torch.Tensor | None] = _nothing
        self._address = 0
        self._pipeline = Pipeline([], [])

    def run(self, tensor: torch.Tensor, record: list[Event] | None = None) -> None:
        """``tensor`` of ``n`` elements holds the result; what was done when is appended to ``record``.

        Raises InputError for another length or type, or a tensor that is not contiguous, and RuntimeError of
        torch.distributed when a peer is lost.
        """
        if tensor is not self._tensor() or tensor.data_ptr() != self._address:  # ``data`` may have been set anew
            self._place(tensor)
        recorder = None if record is None else EventRecorder(self._device)
        slot = own_slot()
        slot.collective[:] = self._label
        for turn in self._pipeline.begin:
            self._post(turn, recorder)
        for turn in self._pipeline.turns:
            self._complete(turn, slot.waits, recorder)
            if turn.next is not None:
                self._post(turn.next, recorder)
        slot.waits[0] = slot.waits[1] = NOT_WAITING
        if self._divides:
            self._divide(tensor.detach().view(-1), recorder)
        if record is not None and recorder is not None:
            record += recorder.events()

    @cached_property
    def buffer(self) -> torch.Tensor:
        """A tensor of the executor's own to run on, for data that does not lie as it must."""
        return torch.empty(self.n, dtype=self.dtype, device=self._device)

    def _place(self, tensor: torch.Tensor) -> None:
        if tensor.numel() != self.n or tensor.dtype != self.dtype:
            raise InputError(
                f"a tensor of {tensor.numel()} {tensor.dtype} was given where {self.n} {self.dtype} were announced"
            )
        if not tensor.is_contiguous():
            raise InputError(f"a tensor of shape {list(tensor.shape)} and strides {tensor.stride()} is not contiguous")
        if tensor.is_conj() or tensor.is_neg():  # its memory holds something else
            raise InputError("a tensor that is conjugated or negated only when it is read; resolve_conj() it before")
        self._pipeline = self._arrangement.on(tensor.detach().view(-1))
        self._tensor, self._address = weakref.ref(tensor, self._forget), tensor.data_ptr()

    def _forget(self, gone: object) -> None:
        """The memory of a tensor that nobody else has any more is let go."""
        if self._tensor is gone:
            self._pipeline, self._tensor = Pipeline([], []), _nothing

    def _post_each(self, turn: Turn, recorder: EventRecorder | None) -> None:
        send, receive, tag = self._send, self._receive, TAG + turn.chain
        for message in turn.first:
            message.work = receive(message.data_list, message.peer, tag)
        if recorder is not None:  # before they are posted: a message may arrive sooner than posting it returns
            _stamp(turn, recorder.now())
        for message in turn.step.sends:
            self.bytes_sent += message.nbytes
            message.work = send(message.data_list, message.peer, tag)
        for message in turn.ahead:
            message.work = receive(message.data_list, message.peer, tag)
        self._begin_local(turn, recorder)

    def _post_together(self, turn: Turn, recorder: EventRecorder | None) -> None:
        """The same for NCCL, where messages that are posted one by one would wait for each other."""
        if recorder is not None:
            _stamp(turn, recorder.now())
        receives = [(message.peer, message.data) for message in turn.first]
        sends = [(message.peer, message.data) for message in turn.step.sends]
        together = posted_together(self._groups[turn.channel], receives, sends)
        for message in (*turn.first, *turn.step.sends):
            message.work = together
        self.bytes_sent += sum(message.nbytes for message in turn.step.sends)
        self._begin_local(turn, recorder)

    def _begin_local(self, turn: Turn, recorder: EventRecorder | None) -> None:
        for data, kept in turn.step.kept:
            kept.copy_(data)
        for landing in turn.step.local:
            self._land(landing, turn, recorder)

    def _complete(self, turn: Turn, waits: memoryview, recorder: EventRecorder | None) -> None:
        waits[0] = turn.step.number
        for message in turn.step.receives:
            waits[1] = message.peer
            message.work.wait()
            if recorder is not None:
                recorder.add_message(turn.channel, message)
            if message.landing is not None:
                self._land(message.landing, turn, recorder)
        for message in turn.due:
            waits[1] = message.peer
            message.work.wait()
            if recorder is not None:
                recorder.add_message(turn.channel, message)
        for landing in turn.step.late:
            self._land(landing, turn, recorder)

    def _land(self, landing: Landing, turn: Turn, recorder: EventRecorder | None) -> None:
        begin = 0.0 if recorder is None else recorder.now()
        if landing.combines:
            self._combine(landing.target, landing.data)
        else:
            landing.target.copy_(landing.data)
        if recorder is not None:
            recorder.add_local(turn.channel, turn.step.number, landing, begin)

    def _divide(self, buffer: torch.Tensor, recorder: EventRecorder | None) -> None:
        """The sum is the mean. It is noted as a reduction of the whole buffer, in a step after the last."""
        begin = 0.0 if recorder is None else recorder.now()
        buffer[self._divided].div_(self.world_size)
        if recorder is not None:
            whole = Landing(reduce(0, into=0, count=self._arrangement.chunks), buffer, buffer, combines=True)
            recorder.add_local(0, max(map(len, self._arrangement.programs)), whole, begin)


def check_known(op: str) -> None:
    """Raise InputError unless ``op`` is known."""
    if op not in COMBINE:
        raise InputError(f"op {op!r} is not known; there are {', '.join(OPS)}")


def check_reduces(op: str, dtype: torch.dtype) -> None:
    """Raise InputError unless torch can reduce elements of ``dtype`` with ``op``, which is known."""
    kind = str(dtype).removeprefix("torch.")
    if op == "mean" and not (dtype.is_floating_point or dtype.is_complex):
        raise InputError(f"op 'mean' needs a floating dtype, not {kind!r}")
    try:
        COMBINE[op](torch.zeros(1, dtype=dtype), torch.zeros(1, dtype=dtype))
    except (RuntimeError, TypeError) as error:
        raise InputError(f"op {op!r} cannot reduce dtype {kind!r}: {error}") from error


def _parts(parts: range, n: int, world_size: int) -> slice:
    """The elements of some consecutive parts of a buffer."""
    return slice(parts.start * n // world_size, parts.stop * n // world_size)


def _stamp(turn: Turn, now: float) -> None:
    for message in (*turn.first, *turn.step.sends, *turn.ahead):
        message.posted = now


def _nothing() -> None:
    return None
