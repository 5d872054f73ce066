"""The executor: any rank program on a real tensor, over torch.distributed's point-to-point calls.

A step keeps the contract of ``collectives.step``. Receives are posted before sends: gloo's notice that a receiver is
ready otherwise queues behind the outgoing data on the same connection, which doubles the time of an exchange.
"""

from collections.abc import Callable, Sequence
from time import perf_counter
from typing import NamedTuple, Protocol

import torch
import torch.distributed as dist

from collectives.catalogue import Algorithm
from collectives.errors import InputError
from collectives.step import offset, reduce
from collectives.workload import check_op
from realcomm.measurement import Event
from realcomm.placement import Landing, Memory, PlacedStep, Transfer, placed, staging_elements
from realcomm.status import COLLECTIVE_BYTES, NOT_WAITING, padded
from realcomm.worker import own_slot

# (target, incoming): target holds both afterwards
COMBINE: dict[str, Callable[[torch.Tensor, torch.Tensor], object]] = {
    "sum": torch.Tensor.add_,
    "mean": torch.Tensor.add_,  # divided once, at the end
    "min": lambda target, incoming: torch.minimum(target, incoming, out=target),
    "max": lambda target, incoming: torch.maximum(target, incoming, out=target),
    "product": torch.Tensor.mul_,
}


class Work(Protocol):
    """What torch.distributed gives for a message under way."""

    def wait(self) -> object: ...


def execute(
    algorithm: Algorithm,
    tensor: torch.Tensor,
    op: str = "sum",
    root: int = 0,
    group: dist.ProcessGroup | None = None,
    record: list[Event] | None = None,
) -> None:
    """``tensor``, of the same length on every rank of ``group``, holds what the collective promises this rank.

    Raises InputError for a tensor that is not contiguous, or that ``op`` cannot reduce.
    """
    rank, world_size = dist.get_rank(group), dist.get_world_size(group)
    executor = Executor(algorithm, rank, world_size, tensor.numel(), tensor.dtype, op, root, group, tensor.device)
    executor.run(tensor, record)


class Executor:
    """One rank's part of one collective on buffers of ``n`` elements, ready to run many times.

    Scratch and staging are allocated once; slices are resolved once, as long as the same tensor comes again.
    """

    def __init__(
        self,
        algorithm: Algorithm,
        rank: int,
        world_size: int,
        n: int,
        dtype: torch.dtype = torch.float32,
        op: str = "sum",
        root: int = 0,
        group: dist.ProcessGroup | None = None,
        device: torch.device | str = "cpu",
    ) -> None:
        """Raises InputError for an ``op`` that is not known or cannot reduce ``dtype``."""
        check_op(op, str(dtype).removeprefix("torch."))
        self.rank, self.world_size, self.n, self.dtype = rank, world_size, n, dtype
        self._chunks = algorithm.chunks(world_size)
        self._program = tuple(algorithm.steps(rank, world_size, root))
        self._group = group
        self._post = _post_grouped if dist.get_backend(group) == "nccl" else _post_each
        self._combine = COMBINE[op]
        holds_result = algorithm.spec.end(rank, world_size, root) is not None
        self._divides = op == "mean" and algorithm.spec.reduces and holds_result
        scratch = offset(self._chunks + algorithm.scratch(world_size), n, self._chunks) - n
        self._scratch = torch.empty(scratch, dtype=dtype, device=device)
        staging = staging_elements(self._program, n, self._chunks)
        self._staging = torch.empty(staging, dtype=dtype, device=device)
        self._label = padded(algorithm.full_name, COLLECTIVE_BYTES)
        self._tensor: torch.Tensor | None = None
        self._steps: list[PlacedStep] = []

    def run(self, tensor: torch.Tensor, record: list[Event] | None = None) -> None:
        """``tensor`` of ``n`` elements holds the result; what was done when is appended to ``record``.

        Raises InputError for another length or type, or a tensor that is not contiguous, and RuntimeError of
        torch.distributed when a peer is lost.
        """
        if tensor is not self._tensor:
            self._place(tensor)
        slot = own_slot()
        slot.collective[:] = self._label
        for step in self._steps:
            self._run_step(step, slot.waits, record)
        slot.waits[0] = slot.waits[1] = NOT_WAITING
        if self._divides:
            self._divide(tensor.detach().view(-1), record)

    def _place(self, tensor: torch.Tensor) -> None:
        if tensor.numel() != self.n or tensor.dtype != self.dtype:
            raise InputError(
                f"a tensor of {tensor.numel()} {tensor.dtype} was given where {self.n} {self.dtype} were announced"
            )
        if not tensor.is_contiguous():
            raise InputError(f"a tensor of shape {list(tensor.shape)} and strides {tensor.stride()} is not contiguous")
        memory = Memory(tensor.detach().view(-1), self._scratch, self._staging, self._chunks)
        self._steps, self._tensor = placed(self._program, memory), tensor

    def _run_step(self, step: PlacedStep, waits: memoryview, record: list[Event] | None) -> None:
        receives, sends, posted = self._post(step, self._group)
        for data, kept in step.kept:
            kept.copy_(data)
        for landing in step.local:
            self._land(landing, step.number, record)
        waits[0] = step.number
        for message, work in zip(step.receives, receives, strict=True):
            waits[1] = message.operation.peer
            work.wait()
            _note(record, step.number, message, posted)
            if message.landing is not None:
                self._land(message.landing, step.number, record)
        for message, work in zip(step.sends, sends, strict=True):
            waits[1] = message.operation.peer
            work.wait()
            _note(record, step.number, message, posted)
        for landing in step.late:
            self._land(landing, step.number, record)

    def _land(self, landing: Landing, step: int, record: list[Event] | None) -> None:
        begin = perf_counter()
        if landing.combines:
            self._combine(landing.target, landing.data)
        else:
            landing.target.copy_(landing.data)
        _note(record, step, landing, begin)

    def _divide(self, buffer: torch.Tensor, record: list[Event] | None) -> None:
        """The sum is the mean. It is noted as a reduction of the whole buffer, in a step after the last."""
        begin = perf_counter()
        buffer.div_(self.world_size)
        whole = Landing(reduce(0, into=0, count=self._chunks), buffer, buffer, combines=True)
        _note(record, len(self._program), whole, begin)


Posted = tuple[Sequence[Work], Sequence[Work], float]  # of the receives, of the sends, and when the sends were posted


def _post_each(step: PlacedStep, group: dist.ProcessGroup | None) -> Posted:
    receives = [dist.irecv(message.data, group=group, group_src=message.operation.peer) for message in step.receives]
    posted = perf_counter()
    sends = [dist.isend(message.data, group=group, group_dst=message.operation.peer) for message in step.sends]
    return receives, sends, posted  # type: ignore[return-value]  # None only for a rank outside the group


class _Together(NamedTuple):
    """Several works as one."""

    works: list[dist.Work]

    def wait(self) -> None:
        for work in self.works:
            work.wait()


def _post_grouped(step: PlacedStep, group: dist.ProcessGroup | None) -> Posted:
    """The same for NCCL, where messages that are posted one by one would wait for each other."""
    posted = perf_counter()
    calls = [dist.P2POp(dist.irecv, to.data, group=group, group_peer=to.operation.peer) for to in step.receives]
    calls += [dist.P2POp(dist.isend, of.data, group=group, group_peer=of.operation.peer) for of in step.sends]
    together = _Together(dist.batch_isend_irecv(calls) if calls else [])
    return [together] * len(step.receives), [together] * len(step.sends), posted


def _note(record: list[Event] | None, step: int, what: Transfer | Landing, begin: float) -> None:
    if record is not None:
        if what.data.is_cuda:
            torch.cuda.synchronize()  # only then is it true; so a recorded run is slower on a GPU
        record.append(Event(step, what.operation, begin, perf_counter()))
