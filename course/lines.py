"""Observe one rank of a learner's program: which lines write tensors, return, communicate and wait."""

import sys
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from traceback import walk_tb
from types import FrameType
from typing import Any

import torch
import torch.distributed as dist
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from course.checks.exercise import POINT_TO_POINT, LearnerCall, WrongAnswerError
from virtual.matching.samples import is_plain
from virtual.ranks.rank import Rank
from virtual.ranks.watching import Watcher


class LineNotes(TorchDispatchMode):
    """Records which line of the learner's file runs each operator, and the memory that the operator writes.

    Lines in the exercise's own functions take precedence over other lines of the file on the stack.
    """

    def __init__(self, file: str, functions: Collection[str], others: Collection[str]) -> None:
        """``functions`` are the names of the exercise's functions and classes, ``others`` those of other exercises."""
        super().__init__()
        self.file, self.functions, self.others = file, functions, others
        self.written: list[tuple[int, int, int]] = []  # first address, end address, line
        self.returned, self.is_procedure = 0, False  # line of the last return, and whether it returned None
        self.active = 0  # line that wrote or communicated last
        self.waited = Counter[int]()  # seconds by line
        self.calls: list[LearnerCall] = []
        self.unwaited: dict[Any, LearnerCall] = {}  # posted collectives and receives without wait()

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # else torch imports its compiler, and each operator takes 2 ms

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        results = func(*args, **(kwargs or {}))
        line = self.here()
        if line and not func.is_view:
            self.active = line
            arguments = zip(args, func._schema.arguments, strict=False)
            changed = [argument for argument, declared in arguments if declared.alias_info]
            for tensor in tree_leaves([changed, results]):
                self.note(tensor, line)
        return results

    def here(self) -> int:
        """Return the line of the learner's file that is running, or 0 if there is none."""
        return self.locate()[0]

    def locate(self) -> tuple[int, str]:
        """Return the running line (0 if none) and the send or receive function that it called ("" if none)."""
        frame: FrameType | None = sys._getframe(1)
        line, called = 0, ""
        while frame is not None:
            if frame.f_code.co_filename == self.file:
                if self.is_own(frame):
                    return frame.f_lineno, called
                line = line or frame.f_lineno
            elif not line and frame.f_code.co_name in POINT_TO_POINT and frame.f_code.co_filename == C10D:
                called = frame.f_code.co_name
            frame = frame.f_back
        return line, called

    def is_own(self, frame: FrameType) -> bool:
        """Return whether a frame belongs to one of the exercise's functions or to a method of its classes."""
        name = frame.f_code.co_qualname
        return name in self.functions or name.rpartition(".")[0] in self.functions

    def note(self, tensor: Any, line: int) -> None:
        if isinstance(tensor, torch.Tensor) and is_plain(tensor) and tensor.numel():
            begin = tensor.data_ptr()
            last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
            self.written.append((begin, begin + (last + 1) * tensor.element_size(), line))

    def profile(self, frame: FrameType, event: str, value: Any) -> None:
        """A ``sys.setprofile`` hook that records the line of the last return, except in other exercises' functions."""
        if event == "return" and frame.f_code.co_filename == self.file:
            outer = frame.f_code.co_qualname.partition(".")[0]
            if outer not in (*self.others, "<module>"):
                self.returned, self.is_procedure = frame.f_lineno, value is None

    def line_of(self, error: WrongAnswerError) -> tuple[int, str]:
        """Return the line that probably caused a wrong answer, and an explanation ("" if none is necessary)."""
        tensor = error.tensor
        if isinstance(tensor, torch.Tensor) and is_plain(tensor) and tensor.numel():
            steps = zip(error.place, tensor.stride(), strict=True)
            address = tensor.data_ptr() + sum(index * stride for index, stride in steps) * tensor.element_size()
            for begin, end, line in reversed(self.written):
                if begin <= address < end:
                    return line, "this line wrote it last"
            if self.active and self.is_procedure:
                return self.active, "nothing was written there; this line was the last to write or send anything"
        for frame, line in walk_tb(error.__traceback__):  # for checks that run inside the learner's function
            if frame.f_code.co_filename == self.file and self.is_own(frame):
                return line, ""
        return self.returned, ""


C10D = str(dist.distributed_c10d.__file__)
HALVES = {"sends": "send", "receives": "recv"}  # names for messages that are not posted by a function of C10D


class LineWatcher(Watcher):
    """Records the line of each communication call of a rank, the tensors that it receives, and its waits."""

    def __init__(self, rank: Rank, notes: LineNotes) -> None:
        super().__init__()
        self.rank, self.notes = rank, notes
        self._lines: dict[Any, int] = {}  # line of each posted call
        self._clock = rank.clock

    def posted(self, posted: Any) -> None:
        """Record the line and the function that posted an operation."""
        if posted.rank is self.rank:
            line, called = self.notes.locate()
            self._lines[posted] = line
            self.notes.active = line or self.notes.active
            self._clock = self.rank.clock
            name = called or HALVES.get(posted.way) or posted.likeness.verb
            receiver = posted.peer_in_world if posted.way == "sends" else -1
            nbytes = sum(tensor.nbytes for tensor in posted.tensors)
            call = LearnerCall(name, line, receiver, nbytes)
            self.notes.calls.append(call)
            if line and posted.way != "sends":
                self.notes.unwaited[posted] = call

    def arrived(self, sender: Any, receiver: Any) -> None:
        if receiver in self._lines:
            self.notes.note(receiver.tensors[0], self._lines[receiver])

    def moved(self, collective: Any) -> None:
        """Record the tensors that a completed collective has written."""
        for call in filter(self._lines.__contains__, collective.calls.values()):
            for tensor in tree_leaves(call.exchange.outputs):
                self.notes.note(tensor, self._lines[call])

    def waited(self, posted: Any) -> None:
        """Attribute the seconds that the rank has just waited to the running line."""
        if posted.rank is self.rank:
            self.notes.waited[self.notes.here()] += self.rank.clock - self._clock
            self._clock = self.rank.clock
            self.notes.unwaited.pop(posted, None)


@contextmanager
def noting_lines(file: str, functions: Collection[str], others: Collection[str]) -> Iterator[LineNotes]:
    """Record the lines of ``file`` that this rank runs in the block, and yield the records."""
    group: Any = dist.group.WORLD
    world, notes = group.group.world, LineNotes(file, functions, others)
    world.watch.put((*world.watch.watchers, LineWatcher(world.me(), notes)))
    sys.setprofile(notes.profile)
    try:
        with notes:
            yield notes
    finally:
        sys.setprofile(None)
