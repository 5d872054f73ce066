"""Plan when a rank posts its sends and receives, and when it waits for them, so that independent messages overlap.

Each slice of a channel runs through the steps of the program in order, as a *chain* of steps. One thread runs all
chains in order of *level*, which is the same on all ranks. The level of a step is the number of steps in the longest
sequence of dependent steps that ends with it, over all ranks. A rank therefore never waits for a message that depends
on its own later steps.

Two kinds of operations can move without a change in the result. A receive is posted as soon as its memory is free, so
that the sender learns early that it is ready. A send is awaited one step later if neither step changes its data.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Generic, NamedTuple

from collectives.call import CollectiveCall
from collectives.declaration import Algorithm
from collectives.pipeline.bound_steps import BoundStep, E, Extent, SliceMemory, Transfer, bind_steps, staging_elements
from collectives.proof.completion import completion_order
from collectives.schedule.build import build_schedule
from collectives.step import Step, offset

STAGING_AREAS = 2  # per chain: the next message is received into one while the other is reduced from
SLICE_BYTES = 2 << 20  # minimum slice: smaller slices cost more wake-ups than the overlap saves
LARGEST_SLICE_BYTES = 16 << 20  # maximum slice, so that staging stays small (docs/how-it-works/executor.md)
CHAINS = 4  # chains per channel, each with one slice in flight; further slices follow on the same chains


class Region(NamedTuple):
    """A part of the memory that a step uses: a slice of a chunk, or one of the staging areas."""

    kind: str
    slice: int
    number: int


Levels = dict[tuple[int, int, int], int]  # by (rank, channel, step)


@dataclass(slots=True, eq=False)
class SliceStep(Generic[E]):
    """A step of one slice. It posts messages at its start and waits for messages at its end."""

    channel: int
    chain: int  # index among all chains of the rank
    slice: int
    step: BoundStep[E]
    receives: list[Transfer[E]] = field(default_factory=list)  # posted before the sends of this step
    early_receives: list[Transfer[E]] = field(default_factory=list)  # of later steps, posted after the sends
    due_sends: list[Transfer[E]] = field(default_factory=list)  # of this or the previous step, awaited at its end
    next: "SliceStep[E] | None" = None


class Pipeline(NamedTuple, Generic[E]):
    """All steps of one rank on one buffer, in the order in which the rank completes them."""

    first: list[SliceStep[E]]  # the first step of each chain
    steps: list[SliceStep[E]]  # in the order in which they complete


class PipelineBuilder(Generic[E]):
    """Builds the pipelines of one rank for a collective call. All buffers share the same scratch and staging memory."""

    def __init__(
        self, call: CollectiveCall, rank: int, world_size: int, allocate: Callable[[int], E], grouped: bool
    ) -> None:
        """Allocate the scratch and staging memory. ``allocate`` returns memory for a given number of elements.

        If ``grouped`` is True, a channel has one slice, and each step completes before the next one begins.
        """
        algorithm, n = call.algorithm, call.elements
        self.programs = tuple(tuple(steps) for steps in algorithm.channels(rank, world_size, call.root))
        self.chunks = algorithm.chunks(world_size)
        self.slices = 1 if grouped else count_slices(n // self.chunks * allocate(1).nbytes)
        self._chains = min(self.slices, CHAINS)  # chains per channel
        self._areas = 1 if grouped else STAGING_AREAS
        scratch = offset(self.chunks + algorithm.scratch(world_size), n, self.chunks) - n
        self._scratch = allocate(scratch)
        needs = [staging_elements(program, n, self.chunks, self.slices) for program in self.programs]
        self._staging = [allocate(self._areas * need) for need in needs for _ in range(self._chains)]
        self.chains = len(self._staging)  # chains of all channels
        self._rank = rank
        self._level_of = algorithm, world_size, call.root

    def build(self, buffer: E) -> Pipeline[E]:
        chains = [self._chain(buffer, number) for number in range(self.chains)]
        steps = [step for chain in chains for step in chain]
        if len(chains) > 1:
            steps.sort(key=self._order())
        return Pipeline([chain[0] for chain in chains if chain], steps)

    def _chain(self, buffer: E, number: int) -> list[SliceStep[E]]:
        channel, first_slice = divmod(number, self._chains)
        program, chain = self.programs[channel], list[SliceStep[E]]()
        for index in range(first_slice, self.slices, self._chains):
            memory = SliceMemory(buffer, self._scratch, self._staging[number], self.chunks, index, self.slices)
            steps = bind_steps(program, memory, self._areas, len(chain))
            chain += [SliceStep(channel, number, index, step) for step in steps]
        (_link_early if self._areas > 1 else _link)(chain, program)
        return chain

    def _order(self) -> Callable[[SliceStep[E]], tuple[int, ...]]:
        """Return the sort key for steps: the level, plus a delay for slices that have to wait for an earlier slice."""
        levels = step_levels(*self._level_of)
        delay = -(-max(levels.values(), default=0) // self._chains) if self.slices > self._chains else 0

        def key(step: SliceStep[E]) -> tuple[int, ...]:
            level = levels[self._rank, step.channel, step.step.number]
            return level + delay * step.slice, step.channel, step.slice

        return key


def count_slices(chunk_bytes: int) -> int:
    """Return the number of slices into which each chunk of ``chunk_bytes`` bytes is divided."""
    return max(1, min(CHAINS, chunk_bytes // SLICE_BYTES), chunk_bytes // LARGEST_SLICE_BYTES)


@lru_cache(maxsize=64)
def step_levels(algorithm: Algorithm, world_size: int, root: int) -> Levels:
    """Return the level of each step: the length of the longest sequence of dependent steps that ends with it."""
    schedule = build_schedule(algorithm, world_size, root)
    columns = schedule.rank.tolist(), schedule.channel.tolist(), schedule.step.tolist()
    keys = [*zip(*columns, strict=True)]
    meets = defaultdict[tuple[int, int, int], list[tuple[int, int, int]]](list)
    for key, other in zip(keys, schedule.match.tolist(), strict=True):
        if other >= 0:
            meets[key].append(keys[other])
    levels: Levels = {}
    for done in completion_order(schedule):
        before = [(rank, channel, step - 1) for rank, channel, step in (done, *meets[done])]
        levels[done] = 1 + max(levels.get(key, 0) for key in before)
    return levels


def _link(chain: list[SliceStep[E]], program: tuple[Step, ...]) -> None:
    for step, following in zip(chain, [*chain[1:], None], strict=False):  # the chain may be empty
        step.next = following
        step.receives, step.due_sends = step.step.receives, step.step.sends


def _link_early(chain: list[SliceStep[E]], program: tuple[Step, ...]) -> None:
    """Let earlier steps post a receive once its memory is free, and let later steps wait for sends."""
    free: dict[Region, int] = {}  # the first step of the chain that may post a receive into a region
    posted: dict[int, int] = {}  # the step that posts the last receive from each peer: they stay in order
    for at, step in enumerate(chain):
        step.next = chain[at + 1] if at + 1 < len(chain) else None
        staging = Region("staging", 0, at % STAGING_AREAS)
        for receive in step.step.receives:
            into = [staging] if receive.is_staged else _regions(step.slice, receive.operation.target)
            post = max(at + 1 - STAGING_AREAS, posted.get(receive.peer, 0), *(free.get(region, 0) for region in into))
            posted[receive.peer] = post
            (step.receives if post == at else chain[post].early_receives).append(receive)
        used = [r for op in program[step.step.number] for r in _regions(step.slice, (*op.source, *op.target))]
        free.update(dict.fromkeys([staging, *used], at + 1))
        _set_due_sends(step, at, program, free)


def _set_due_sends(step: SliceStep[E], at: int, program: tuple[Step, ...], free: dict[Region, int]) -> None:
    """Choose the step that waits for each send: the next step if neither step changes the data, otherwise ``step``."""
    changed = {*_written(step, program), *(_written(step.next, program) if step.next else ())}
    for send in step.step.sends:
        regions = _regions(step.slice, send.operation.source)
        late = step.next is not None and changed.isdisjoint(regions)
        (step.next if step.next is not None and late else step).due_sends.append(send)
        free.update(dict.fromkeys(regions, at + 1 + late))


def _regions(index: int, chunks: Iterable[int]) -> list[Region]:
    return [Region("chunk", index, chunk) for chunk in chunks]


def _written(step: SliceStep[E], program: tuple[Step, ...]) -> list[Region]:
    return [region for op in program[step.step.number] for region in _regions(step.slice, op.target)]


def plan_pipeline(call: CollectiveCall, rank: int, world_size: int, *, step_by_step: bool = False) -> Pipeline[Extent]:
    """Return the sends and receives of a rank in the order in which the executor posts and awaits them.

    If ``step_by_step`` is True, each step completes before the next one begins.

    >>> from collectives import find_algorithm
    >>> pipeline = plan_pipeline(CollectiveCall(find_algorithm("all_reduce/ring"), 100), 0, 4)
    >>> [send.nbytes for step in pipeline.steps for send in step.step.sends]
    [100, 100, 100, 100, 100, 100]
    """
    builder = PipelineBuilder[Extent](
        call, rank, world_size, lambda elements: Extent(elements, call.itemsize), grouped=step_by_step
    )
    return builder.build(Extent(call.elements, call.itemsize))
