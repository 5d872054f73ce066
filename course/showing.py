"""Run the function of a lesson on values that tell whose they are: what each virtual rank executes.

    python -m course.showing FILE LESSON FOLDER

What the rank's tensor holds over time is written into the folder, as ``Contents``.
"""

import json
import sys
import warnings
from bisect import bisect_left, bisect_right
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from course.checks.collectives import values
from course.files import CONTENTS, find_lesson
from course.trial import load
from virtual.ranks.watching import Watcher


class Contents(NamedTuple):
    """What a rank's tensor holds, by the value in the middle of each chunk, and what its messages carry."""

    places: list[int]  # of the values in the tensor
    seen: list[tuple[float, list[float]]]  # seconds, and the values then
    met: list[
        tuple[int, int, int, int, float, int, int]
    ]  # in order: sender, receiver, first chunk or -1, chunks, value;
    # the lines that send and receive


class TensorWatcher(Watcher):
    """Looks at a rank's tensor whenever that rank posts something, and at its messages."""

    def __init__(self, rank: Any, tensor: torch.Tensor, chunks: int) -> None:
        super().__init__()
        self.rank, self.tensor = rank, tensor
        parts = [part for part in torch.arange(tensor.numel()).tensor_split(chunks) if len(part)]
        self.begins = [int(part[0]) for part in parts]
        self.contents = Contents([int(part[len(part) // 2]) for part in parts], [], [])
        self.look()

    def posted(self, posted: Any) -> None:
        """See what the tensor holds when its rank posts the next."""
        if posted.rank is self.rank:
            self.look()

    def met(self, sender: Any, receiver: Any) -> None:
        """See what a message carries, and which chunk of the tensor that is, or where it goes."""
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
        """Note what the tensor holds now."""
        held = self.tensor.reshape(-1)[self.contents.places].tolist()
        self.contents.seen.append((self.rank.clock, held))


def main() -> None:
    """Call the learner's function on this rank's values, and write what was seen when it is through."""
    path, number, folder = Path(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    warnings.simplefilter("ignore")
    dist.init_process_group("gloo")
    group: Any = dist.group.WORLD
    world, shown = group.group.world, find_lesson(number).shown
    rank = dist.get_rank()
    tensor = values(rank, shown.nbytes // 4)
    watcher = TensorWatcher(world.me(), tensor, dist.get_world_size())
    world.watch.put((*world.watch.watchers, watcher))
    try:
        assert shown.call is not None
        shown.call(load(path, ModuleType("lesson")), tensor)
    finally:  # also where it never ends, and is stopped
        watcher.look()
        (folder / CONTENTS.format(rank)).write_text(json.dumps(watcher.contents))


if __name__ == "__main__":
    main()
