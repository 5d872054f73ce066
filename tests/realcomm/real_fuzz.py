"""Workers that make random sequences of calls: results next to torch's own.

All ranks draw the same calls. Each rank waits for its handles in its own order.
"""

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from real_calls import Call, build, draw_call, flat, has_ones_around, torchs_results

from collectives.pipeline import pipeline

PENDING = 6  # handles that are not awaited yet, at most
SLICE_BYTES = 16, 1 << 20  # so that small tensors travel in many slices, or in one


@dataclass
class Group:
    """A process group, or None for all ranks, and its world ranks."""

    group: Any
    members: list[int]

    @property
    def is_here(self) -> bool:
        return dist.get_rank() in self.members

    @property
    def place(self) -> tuple[int, int]:
        """This rank's number in the group, and the size of the group."""
        return self.members.index(dist.get_rank()), len(self.members)


@dataclass
class Fuzz:
    """The calls of one rank, counted by function, and the problems found."""

    seed: int
    made: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    pending: list[Callable[[], None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        world_size = dist.get_world_size()
        self.draw = random.Random(self.seed)
        self.own = random.Random(1000 * self.seed + dist.get_rank() + 1)
        pipeline.SLICE_BYTES = self.draw.choice(SLICE_BYTES)
        pipeline.LARGEST_SLICE_BYTES = 4 * pipeline.SLICE_BYTES
        self.groups = [Group(None, list(range(world_size))), *(self.new_group() for _ in range(3))]

    def new_group(self) -> Group:
        world_size = dist.get_world_size()
        members = sorted(self.draw.sample(range(world_size), self.draw.randint(1, world_size)))
        return Group(dist.new_group(members), members)

    def step(self) -> None:
        group = self.draw.choice(self.groups)
        call, async_op = draw_call(self.draw, len(group.members)), self.draw.random() < 0.5
        if not group.is_here:
            self.note(call, build(call, 0, 1).make(group.group, async_op) is None, "a rank outside the group took part")
            return
        self.compare(call, group, async_op)
        while len(self.pending) > self.own.randrange(PENDING):
            self.pending.pop(self.own.randrange(len(self.pending)))()

    def note(self, call: Call, is_right: bool, problem: str) -> None:
        if not is_right:
            self.wrong.append(f"seed {self.seed}, rank {dist.get_rank()}, {sum(self.made.values())}: {call}: {problem}")

    def compare(self, call: Call, group: Group, async_op: bool) -> None:
        """Make a call with realcomm and with torch; compare the results when it is done."""
        wanted = torchs_results(call, *group.place, group.group)
        built = build(call, *group.place)
        before = [flat(tensor) for tensor in built.inputs]
        work = built.make(group.group, async_op)
        self.made[call.name] += 1

        def check() -> None:
            if work is not None:
                self.note(call, work.wait(), "wait() returned False")
            results = [flat(tensor) for tensor in built.results]
            equal = len(results) == len(wanted) and all(map(torch.equal, results, wanted))
            self.note(call, equal, f"{results} is not {wanted}")
            inputs = [tensor for tensor in built.inputs if not any(tensor is result for result in built.results)]
            self.note(call, all(map(torch.equal, map(flat, inputs), before)), "an input has changed")
            self.note(call, all(map(has_ones_around, built.results)), "memory around a result has changed")

        if work is None:
            check()
        else:
            self.pending.append(check)

    def settle(self) -> None:
        while self.pending:
            self.pending.pop(self.own.randrange(len(self.pending)))()


def random_calls(rank: int, world_size: int, seed: int, count: int) -> tuple[dict[str, int], list[str]]:
    fuzz = Fuzz(seed)
    for _ in range(count):
        fuzz.step()
    fuzz.settle()
    dist.barrier()
    return dict(fuzz.made), fuzz.wrong[:3]
