"""Which lines of a learner's file wrote into a tensor, returned from a function, and waited: noted for one rank."""

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

from course.checks.exercise import WrongAnswerError
from virtual.matching.samples import is_plain
from virtual.ranks.rank import Rank
from virtual.ranks.watching import Watcher


class LineNotes(TorchDispatchMode):
    """Notes of a rank's operators which line of a file carries them out, and what memory they write.

    Of lines that are on the stack at once it takes that of the exercise's own functions or methods, else the innermost.
    """

    def __init__(self, file: str, functions: Collection[str], others: Collection[str]) -> None:
        """Take what the exercise's functions and classes are called, and those of the file's other exercises."""
        super().__init__()
        self.file, self.functions, self.others = file, functions, others
        self.written: list[tuple[int, int, int]] = []  # the first address, the one behind the last, and the line
        self.returned, self.is_procedure = 0, False  # where a function has returned last, and whether it was None
        self.active = 0  # which has last written or posted anything
        self.waited = Counter[int]()  # seconds by line

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # else torch imports its compiler with the first operator, and takes 2 ms for each

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        line = self.here()
        if line and not func.is_view:
            self.active = line
            schema = func._schema
            given = [one for one, said in zip(args, schema.arguments, strict=False) if said.alias_info]
            for tensor in tree_leaves([given, found]):
                self.note(tensor, line)
        return found

    def here(self) -> int:
        """Return the line of the file that is being carried out; 0 where none is."""
        frame: FrameType | None = sys._getframe(1)
        line = 0
        while frame is not None:
            if frame.f_code.co_filename == self.file:
                if self.is_own(frame):
                    return frame.f_lineno
                line = line or frame.f_lineno
            frame = frame.f_back
        return line

    def is_own(self, frame: FrameType) -> bool:
        """Return whether a frame is of one of the exercise's functions or of a method of its classes."""
        name = frame.f_code.co_qualname
        return name in self.functions or name.rpartition(".")[0] in self.functions

    def note(self, tensor: Any, line: int) -> None:
        """Note that a line has written into a tensor."""
        if isinstance(tensor, torch.Tensor) and is_plain(tensor) and tensor.numel():
            begin = tensor.data_ptr()
            last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
            self.written.append((begin, begin + (last + 1) * tensor.element_size(), line))

    def profile(self, frame: FrameType, event: str, value: Any) -> None:
        """Be the interpreter's profiler, which hears of returns."""
        if event == "return" and frame.f_code.co_filename == self.file:
            outer = frame.f_code.co_qualname.partition(".")[0]
            if outer not in (*self.others, "<module>"):
                self.returned, self.is_procedure = frame.f_lineno, value is None

    def line_of(self, error: WrongAnswerError) -> tuple[int, str]:
        """Return the line that a wrong answer comes from, and in words what it has done."""
        tensor = error.tensor
        if isinstance(tensor, torch.Tensor) and is_plain(tensor) and tensor.numel():
            steps = zip(error.place, tensor.stride(), strict=True)
            address = tensor.data_ptr() + sum(index * stride for index, stride in steps) * tensor.element_size()
            for begin, end, line in reversed(self.written):
                if begin <= address < end:
                    return line, "this line wrote it last"
            if self.active and self.is_procedure:
                return self.active, "nothing was written there; this line was the last to write or send anything"
        for frame, line in walk_tb(error.__traceback__):  # what the learner's function calls may find it out
            if frame.f_code.co_filename == self.file and self.is_own(frame):
                return line, ""
        return self.returned, ""


class LineWatcher(Watcher):
    """Notes the lines whose messages and collectives write a rank's tensors, and those in which it waits."""

    def __init__(self, rank: Rank, notes: LineNotes) -> None:
        super().__init__()
        self.rank, self.notes = rank, notes
        self._lines: dict[Any, int] = {}  # of what was posted
        self._clock = rank.clock

    def posted(self, posted: Any) -> None:
        """Note the line."""
        if posted.rank is self.rank:
            self._lines[posted] = line = self.notes.here()
            self.notes.active = line or self.notes.active
            self._clock = self.rank.clock

    def arrived(self, sender: Any, receiver: Any) -> None:
        """Note what a message has written."""
        if receiver in self._lines:
            self.notes.note(receiver.tensors[0], self._lines[receiver])

    def moved(self, collective: Any) -> None:
        """Note what a collective has written."""
        for call in filter(self._lines.__contains__, collective.calls.values()):
            for tensor in tree_leaves(call.exchange.taken):
                self.notes.note(tensor, self._lines[call])

    def waited(self, posted: Any) -> None:
        """Note how long the rank has waited."""
        if posted.rank is self.rank:
            self.notes.waited[self.notes.here()] += self.rank.clock - self._clock
            self._clock = self.rank.clock


@contextmanager
def noting_lines(file: str, functions: Collection[str], others: Collection[str]) -> Iterator[LineNotes]:
    """Note the lines of a file that the calling rank carries out for an exercise."""
    group: Any = dist.group.WORLD
    world, notes = group.group.world, LineNotes(file, functions, others)
    world.watch.put((*world.watch.watchers, LineWatcher(world.me(), notes)))
    sys.setprofile(notes.profile)
    try:
        with notes:
            yield notes
    finally:
        sys.setprofile(None)
