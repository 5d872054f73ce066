"""Whether an algorithm achieves its spec: a symbolic run in which chunks hold contributors, never numbers.

Rendezvous is assumed: neither half of a message completes before the other is posted, so what finishes here needs no
buffering from any backend. Matching is static, so this one run stands for every interleaving.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from collectives.catalogue import Algorithm
from collectives.schedule import ProgramError, Schedule, operation, setting, trace
from collectives.spec import Contributors
from collectives.step import Kind, Operation


@dataclass(frozen=True)
class Report:
    """What a correct algorithm costs at one world size."""

    world_size: int
    root: int
    steps: int
    messages: int
    sent_share: float  # bytes that the busiest rank sends, as a share of the buffer's bytes


def verify(algorithm: Algorithm, world_size: int, root: int = 0) -> Report:
    """Prove that every rank ends with what the spec says, each contribution counted once, without deadlock.

    Raises ProgramError that names the rank, step, chunk and peer where it goes wrong.
    """
    schedule = trace(algorithm, world_size, root)
    run = _SymbolicRun(schedule)
    for rank, step in completion_order(schedule):
        run.complete(rank, step)
    run.check_end()
    n = schedule.chunks
    busiest = int(schedule.elements_sent(n).max(initial=0))
    return Report(world_size, root, schedule.steps, schedule.messages, busiest / n)


def completion_order(schedule: Schedule) -> Iterator[tuple[int, int]]:
    """Each (rank, step) in an order in which they can complete. Raises ProgramError on a deadlock.

    A step is posted when the one before it is complete, and completes when the other halves of its messages are posted.
    """
    partners = _partners(schedule)
    position = [0] * schedule.world_size
    ready = list(range(schedule.world_size))
    while ready:
        rank = ready.pop()
        while position[rank] < len(schedule.programs[rank]):
            waiting = partners[rank][position[rank]]
            if any(position[peer] < step for peer, step, _ in waiting):
                break
            yield rank, position[rank]
            position[rank] += 1
            ready.extend(_waiting_for(rank, position, partners))
    if any(at < len(program) for at, program in zip(position, schedule.programs, strict=True)):
        raise _deadlock(schedule, position, partners)


Partners = list[list[list[tuple[int, int, int]]]]  # [rank][step] -> (peer, its step, index of our operation)


def _partners(schedule: Schedule) -> Partners:
    partners: Partners = [[[] for _ in program] for program in schedule.programs]
    steps, ranks = schedule.step.tolist(), schedule.rank.tolist()
    for index, match in enumerate(schedule.match.tolist()):
        if match >= 0:
            partners[ranks[index]][steps[index]].append((ranks[match], steps[match], index))
    return partners


def _waiting_for(rank: int, position: list[int], partners: Partners) -> set[int]:
    """Ranks whose messages meet the step that ``rank`` has just posted."""
    if position[rank] >= len(partners[rank]):
        return set()
    return {peer for peer, step, _ in partners[rank][position[rank]] if position[peer] == step}


def _deadlock(schedule: Schedule, position: list[int], partners: Partners) -> ProgramError:
    """The circle of ranks that wait for each other."""
    blocking = {
        rank: next((peer, index) for peer, step, index in partners[rank][at] if position[peer] < step)
        for rank, at in enumerate(position)
        if at < len(partners[rank])
    }
    circle: list[int] = []
    rank = min(blocking)
    while rank not in circle:
        circle.append(rank)
        rank = blocking[rank][0]
    circle = circle[circle.index(rank) :]
    lines = [
        f"rank {r} in step {position[r]} waits for rank {blocking[r][0]} in {operation(schedule, blocking[r][1])}"
        for r in circle
    ]
    name = setting(schedule.algorithm, schedule.world_size, schedule.root)
    return ProgramError(
        f"{name}: deadlock: {'; '.join(lines)}. What must overlap belongs in one step: yield send(...), recv(...)",
        schedule.world_size, circle[0], position[circle[0]],
    )  # fmt: skip


class _SymbolicRun:
    """The chunks of every rank while the steps complete one after the other."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self.spec = schedule.algorithm.spec
        self.chunks = [self._start(rank) for rank in range(schedule.world_size)]
        self.in_flight: dict[int, list[Contributors]] = {}  # by index of the send
        self.indices: dict[tuple[int, int], list[int]] = {}
        for index, key in enumerate(zip(schedule.rank.tolist(), schedule.step.tolist(), strict=True)):
            self.indices.setdefault(key, []).append(index)
        for rank in range(schedule.world_size):
            self._post(rank, 0)

    def _start(self, rank: int) -> list[Contributors | None]:
        who = self.spec.start(rank, self.schedule.world_size, self.schedule.root)
        return [*[who] * self.schedule.chunks, *[None] * self.schedule.scratch]

    def _post(self, rank: int, step: int) -> None:
        """A send carries the chunk as it was before the step: taken when the step is posted."""
        for index in self.indices.get((rank, step), []):
            if self.schedule.kind[index] == Kind.SEND:
                self.in_flight[index] = self._read(rank, step, operation(self.schedule, index))

    def _read(self, rank: int, step: int, op: Operation) -> list[Contributors]:
        values = []
        for chunk in op.source:
            value = self.chunks[rank][chunk]
            if value is None:
                raise self._wrong(rank, step, op, self._empty(rank, chunk))
            values.append(value)
        return values

    def complete(self, rank: int, step: int) -> None:
        after = list(self.chunks[rank])
        for index in self.indices.get((rank, step), []):
            op = operation(self.schedule, index)
            if op.kind is Kind.SEND:
                continue
            at_other_end = int(self.schedule.match[index])
            incoming = self.in_flight.pop(at_other_end) if op.kind.receives else self._read(rank, step, op)
            for chunk, value in zip(op.target, incoming, strict=True):
                after[chunk] = self._combined(rank, step, op, chunk, value) if op.kind.combines else value
        self.chunks[rank] = after
        self._post(rank, step + 1)

    def _combined(self, rank: int, step: int, op: Operation, chunk: int, value: Contributors) -> Contributors:
        held = self.chunks[rank][chunk]
        if held is None:
            raise self._wrong(rank, step, op, f"{self._empty(rank, chunk)}, so nothing can be reduced into it")
        doubled = held & value
        if doubled:
            raise self._wrong(
                rank, step, op,
                f"the contribution of {_ranks(doubled)} would be counted twice: the chunk already holds "
                f"{_ranks(held)} and {_ranks(value)} would be added",
            )  # fmt: skip
        return held | value

    def check_end(self) -> None:
        for rank in range(self.schedule.world_size):
            expected = self.spec.end(rank, self.schedule.world_size, self.schedule.root)
            if expected is None:
                continue
            for chunk in range(self.schedule.chunks):
                self._check_chunk(rank, chunk, self.chunks[rank][chunk], expected)

    def _check_chunk(self, rank: int, chunk: int, value: Contributors | None, expected: Contributors) -> None:
        if value is None:
            raise self._wrong_end(rank, chunk, f"holds nothing; it should hold the data of {_ranks(expected)}")
        missing, foreign = expected - value, value - expected
        if missing or foreign:
            parts = [f"misses the contribution of {_ranks(missing)}"] if missing else []
            parts += [f"holds that of {_ranks(foreign)}, which does not belong there"] if foreign else []
            raise self._wrong_end(rank, chunk, " and ".join(parts))

    def _empty(self, rank: int, chunk: int) -> str:
        """Why there is nothing in a chunk: undefined data never moves, so it has been so from the start."""
        if chunk >= self.schedule.chunks:
            return f"chunk {chunk} holds nothing yet (scratch is undefined at the start)"
        return f"chunk {chunk} holds nothing yet (only the root, rank {self.schedule.root}, starts with data)"

    def _wrong(self, rank: int, step: int, op: Operation, problem: str) -> ProgramError:
        schedule = self.schedule
        name = setting(schedule.algorithm, schedule.world_size, schedule.root)
        return ProgramError(f"{name}, rank {rank}, step {step}: {op}: {problem}", schedule.world_size, rank, step)

    def _wrong_end(self, rank: int, chunk: int, problem: str) -> ProgramError:
        schedule = self.schedule
        name = setting(schedule.algorithm, schedule.world_size, schedule.root)
        hint = "" if schedule.steps else "; no rank yields a step (`yield` a step, `yield from` another program)"
        message = f"{name}: at the end chunk {chunk} of rank {rank} {problem}{hint}"
        return ProgramError(message, schedule.world_size, rank)


def _ranks(ranks: Contributors) -> str:
    """``rank 3``, ``ranks 0, 2``; of many the first few."""
    first = ", ".join(map(str, sorted(ranks)[:8]))
    if len(ranks) == 1:
        return f"rank {first}"
    return f"ranks {first}" + (f" and {len(ranks) - 8} more" if len(ranks) > 8 else "")
