"""The program that each virtual rank runs to show a learner's file.

    python -m course.showing FILE LESSON FOLDER

Each rank writes the values of its tensor over time into FOLDER, as ``Contents``. In the lesson on pipelines, it writes
a ``StageSpan`` for each forward and backward.
"""

import json
import os
import sys
import warnings
from bisect import bisect_left, bisect_right
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from course.checks.collectives import values
from course.checks.exercise import Shown
from course.files import CONTENTS, SPANS, find_lesson
from course.trial import load
from virtual.ranks.watching import Watcher


class Contents(NamedTuple):
    """Samples of a rank's tensor over time, one from the middle of each chunk, and the rank's messages."""

    places: list[int]  # indices of the values in the tensor
    seen: list[tuple[float, list[float]]]  # times in seconds, with the values at that time
    # messages in order: sender, receiver, first chunk or -1, chunks, value, the lines that send and receive
    met: list[tuple[int, int, int, int, float, int, int]]


class TensorWatcher(Watcher):
    """Records samples of a rank's tensor each time the rank posts an operation, and the first value of each message."""

    def __init__(self, rank: Any, tensor: torch.Tensor, chunks: int) -> None:
        super().__init__()
        self.rank, self.tensor = rank, tensor
        parts = [part for part in torch.arange(tensor.numel()).tensor_split(chunks) if len(part)]
        self.begins = [int(part[0]) for part in parts]
        self.contents = Contents([int(part[len(part) // 2]) for part in parts], [], [])
        self.look()

    def posted(self, posted: Any) -> None:
        if posted.rank is self.rank:
            self.look()

    def met(self, sender: Any, receiver: Any) -> None:
        """Record a message's first element, and the tensor chunk that the message comes from or goes to."""
        for half in (sender, receiver):
            if half.rank is self.rank:
                part, sent = half.tensors[0], sender.tensors[0]
                mine = part.untyped_storage().data_ptr() == self.tensor.untyped_storage().data_ptr()
                begin = part.storage_offset()
                chunk = bisect_right(self.begins, begin) - 1 if mine else -1
                count = bisect_left(self.begins, begin + part.numel()) - chunk if mine else 1
                value = float(sent.reshape(-1)[0]) if sent.numel() else 0.0
                lines = sender.site.line, receiver.site.line
                self.contents.met.append((sender.rank.number, receiver.rank.number, chunk, count, value, *lines))

    def look(self) -> None:
        values = self.tensor.reshape(-1)[self.contents.places].tolist()
        self.contents.seen.append((self.rank.clock, values))


def main() -> None:
    """Call the lesson's function or run the file's ``main``, and write what was recorded."""
    path, number, folder = Path(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    warnings.simplefilter("ignore")
    shown = find_lesson(number).shown
    if shown.call is not None:
        call_function(path, shown, folder)
    else:
        run_stages(path, shown, folder)


def call_function(path: Path, shown: Shown, folder: Path) -> None:
    """Call the learner's function on this rank's values, and write the values of its tensor over time."""
    assert shown.call is not None
    dist.init_process_group("gloo")
    group: Any = dist.group.WORLD
    world, rank = group.group.world, dist.get_rank()
    tensor = values(rank, shown.nbytes // 4)
    watcher = TensorWatcher(world.me(), tensor, dist.get_world_size())
    world.watch.put((*world.watch.watchers, watcher))
    try:
        shown.call(load(path, ModuleType("lesson")), tensor)
    finally:  # a deadlock ends the call
        watcher.look()
        (folder / CONTENTS.format(rank)).write_text(json.dumps(watcher.contents))


def run_stages(path: Path, shown: Shown, folder: Path) -> None:
    assert shown.record is not None
    lesson, spans = load(path, ModuleType("lesson")), list[Any]()
    shown.record(lesson, spans)
    rank = int(os.environ["RANK"])
    try:
        lesson.main()
    finally:
        (folder / SPANS.format(rank)).write_text(json.dumps(spans))


if __name__ == "__main__":
    main()
