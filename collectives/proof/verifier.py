"""Prove that an algorithm is correct, by a symbolic run in which chunks contain contributors instead of numbers.

Wrong numbers can be equal by chance, but contributors cannot. A chunk contains the set of ranks whose data was reduced
into it, as the bits of an integer (0: undefined). It also has an *origin*: the chunk of those ranks' buffers in which
the data started. Steps complete in the order of ``collectives.proof.completion``. If a rank lacks data at the end, the
error names the last rank that had the data, and the data that the rank received last.

An operation is a *mistake* if it reads undefined data, adds data of another chunk, or counts a contribution twice. Each
mistake has its own bit above the bits of the ranks. It is an error only if this bit reaches a result.

A chunk also has a *reduction order*: a number for the expression that computed its sum. Floating-point addition is
commutative but not associative. Therefore, a + b and b + a get the same number, but (a + b) + c and a + (b + c) do not.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import and_, or_
from typing import NamedTuple

from collectives.budget import Gigabyte, check_fits
from collectives.declaration import Algorithm
from collectives.errors import InputError, ProgramError
from collectives.proof.completion import completion_depths, completion_order
from collectives.quoting import name_ranks
from collectives.schedule.build import build_schedule
from collectives.schedule.schedule import Schedule
from collectives.spec import Contents, Contributors
from collectives.step import Kind, Operation


class Landing(NamedTuple):
    """One operation's write to a chunk. Contributors are sets of ranks, stored as the bits of an integer."""

    operation: int  # its index in the schedule
    chunk: int
    origin: int  # the chunk of the contributors' buffers that the received data comes from
    before: int  # contributors before the write
    brought: int  # contributors of the received data
    after: int  # contributors after the write


class WrongChunk(NamedTuple):
    """A chunk with wrong data at the end, and the data that it should have."""

    rank: int
    chunk: int
    expected: int  # the bits of the ranks whose data should be in it
    origin: int


def explain_missing(schedule: Schedule, landings: Sequence[Landing], rank: int, chunk: int, missing: int) -> str:
    """Return the reason why ``chunk`` of ``rank`` lacks the data of the lowest rank in the bit set ``missing``.

    ``landings`` are the writes of all ranks to their chunks, in the order in which they happened.
    """
    contributor = missing & -missing
    which = "it" if missing == contributor else f"that of {_ranks_of(contributor)}"
    arrivals = [landing for landing in landings if schedule.rank[landing.operation] == rank and landing.chunk == chunk]
    lost = [arrival for arrival in arrivals if arrival.before & contributor and not arrival.after & contributor]
    if lost:
        over = f"{_describe(schedule, lost[-1])} put the data of {_ranks_of(lost[-1].brought)} in its place"
        return f"rank {rank} had {which} until {over}"
    received = [arrival for arrival in arrivals if schedule.match[arrival.operation] >= 0]
    end = f"rank {rank} never receives chunk {chunk}"
    if received:
        end = f"rank {rank} receives chunk {chunk} last in {_describe(schedule, received[-1])} brings the data of "
        end += _ranks_of(received[-1].brought)
    else:
        end += last_step(schedule, rank)
    return f"{_where_it_stayed(schedule, landings, contributor, chunk, which)}; {end}"


def explain_other(schedule: Schedule, landings: Sequence[Landing], rank: int, chunk: int) -> str:
    """Return text that names the last operation that wrote ``chunk`` of ``rank``, or says that there was none."""
    arrivals = [landing for landing in landings if schedule.rank[landing.operation] == rank and landing.chunk == chunk]
    return (
        f"; last written in {_step(schedule, arrivals[-1].operation)}, by {schedule.operation(arrivals[-1].operation)}"
        if arrivals
        else f"; rank {rank} writes nothing there{last_step(schedule, rank)}"
    )


def _where_it_stayed(schedule: Schedule, landings: Sequence[Landing], contributor: int, chunk: int, which: str) -> str:
    came = [
        landing for landing in landings
        if landing.origin == chunk and landing.brought & contributor and not landing.before & contributor
    ]  # fmt: skip
    if not came:
        return _never_sent(schedule, landings, contributor, chunk)
    last = came[-1]
    holder = int(schedule.rank[last.operation])
    stay = f"{which} last reached rank {holder}, in {_step(schedule, last.operation)}"
    return stay if any(_later_sends(schedule, last)) else f"{stay}, which never forwards it"


def _never_sent(schedule: Schedule, landings: Sequence[Landing], contributor: int, chunk: int) -> str:
    owner = contributor.bit_length() - 1
    arrivals = [landing for landing in landings if schedule.rank[landing.operation] == owner and landing.chunk == chunk]
    lost = [arrival for arrival in arrivals if arrival.before & contributor and not arrival.after & contributor]
    first, end, is_own = schedule.chunk, schedule.chunk + schedule.count, schedule.rank == owner
    sends = bool((is_own & (schedule.kind == Kind.SEND) & (first <= chunk) & (chunk < end)).any())
    if lost and sends:
        over = f"{_describe(schedule, lost[0])} puts the data of {_ranks_of(lost[0].brought)} in its place"
        return f"rank {owner} does not send its own data before {over}"
    if arrivals and not lost:
        step = f"step {schedule.step[arrivals[-1].operation]}{_line_after_comma(schedule, arrivals[-1].operation)}"
        return f"rank {owner} never sends chunk {chunk} (it has data of {_ranks_of(arrivals[-1].after)} since {step})"
    return f"rank {owner} never sends chunk {chunk}{last_step(schedule, owner)}"


def last_step(schedule: Schedule, rank: int) -> str:
    """Return text about the line of a rank's last step, or an empty string if the line is unknown."""
    programs = schedule.programs[rank]
    channel = max(range(len(programs)), key=lambda number: len(programs[number]), default=0)
    steps = len(programs[channel]) if programs else 0
    if steps:
        line = schedule.at_line(rank, channel, steps - 1)
        return f", up to its last step, {steps - 1}{line}" if line else ""
    line = schedule.algorithm.find_line(None, schedule.world_size, schedule.root)
    return f", as it yields no step (it begins in {line})" if line else ""


def _line_after_comma(schedule: Schedule, index: int) -> str:
    return schedule.line(index).replace(" (", ", ").partition(" of ")[0]


def _later_sends(schedule: Schedule, landing: Landing) -> Iterator[int]:
    at = landing.operation
    for index, kind in enumerate(schedule.kind.tolist()):
        if kind == Kind.SEND and schedule.rank[index] == schedule.rank[at] and schedule.step[index] > schedule.step[at]:
            first = int(schedule.chunk[index])
            if first <= landing.chunk < first + int(schedule.count[index]):
                yield index


def _describe(schedule: Schedule, landing: Landing) -> str:
    return f"{_step(schedule, landing.operation)}, where {schedule.operation(landing.operation)}"


def _step(schedule: Schedule, index: int) -> str:
    return f"step {schedule.step[index]}{schedule.line(index)}"


def _ranks_of(bits: int) -> str:
    return name_ranks([rank for rank in range(bits.bit_length()) if bits >> rank & 1])


SEND, COMBINING = Kind.SEND, (Kind.RECV_REDUCE, Kind.REDUCE)
MOST_MISTAKES = 1000  # distinct mistakes; each one adds a bit to every value that it affects
ChunkValues = tuple[list[int], list[int], list[int]]  # contributors, origins and orders of consecutive chunks


@dataclass(frozen=True)
class ProofReport:
    """The result of verifying an algorithm at one world size: its costs, and the properties of its reductions.

    >>> verify("all_gather/direct", world_size=4)
    ProofReport(world_size=4, root=0, steps=1, messages=12, sent_share=0.75, ports=3, bitwise_identical=True, \
harmless_mistake=None)
    """

    world_size: int
    root: int
    steps: int  # number of messages in the longest chain of dependent messages
    messages: int
    sent_share: float  # bytes that the busiest rank sends, as a share of the buffer's bytes
    ports: int  # maximum number of ranks that a rank sends to, or receives from, at the same time
    bitwise_identical: bool  # all ranks reduce in the same order, so that floats are equal to the last bit
    harmless_mistake: str | None  # the first mistake that reaches no result


def verify(algorithm: str | Algorithm, world_size: int, root: int = 0) -> ProofReport:
    """Prove that an algorithm cannot deadlock, and that every rank ends with the data that the collective defines.

    The proof also shows that each contribution is counted once, except in a barrier. Raise ProgramError with the rank,
    step, chunk and peer of the error. Raise InputError for an unknown algorithm, an invalid world size or root, or more
    chunks than fit into memory.

    >>> verify("all_reduce/ring", world_size=4).messages
    24
    """
    schedule = build_schedule(algorithm, world_size, root)
    run = SymbolicRun(schedule)
    deepest = 0
    for rank, channel, step, depth in completion_depths(schedule):
        run.complete(rank, channel, step)
        deepest = max(deepest, depth)
    run.check_end()
    n = schedule.chunks
    busiest = int(schedule.elements_sent(n).max(initial=0))
    return ProofReport(
        world_size=world_size,
        root=root,
        steps=deepest,
        messages=schedule.messages,
        sent_share=busiest / n,
        ports=schedule.ports,
        bitwise_identical=run.has_one_order(),
        harmless_mistake=str(run.describe(0)) if run.mistakes else None,
    )


@lru_cache(maxsize=256)
def is_bitwise_identical(algorithm: Algorithm, world_size: int) -> bool:
    """Return whether all ranks reduce each chunk in the same order, so that their float results are bitwise identical.

    If no two ranks end with the same reduced data, return True. Raise ProgramError if the algorithm is not correct.
    """
    return verify(algorithm, world_size).bitwise_identical


def check_bitwise_identical(algorithm: Algorithm, world_size: int) -> None:
    """Raise InputError if float sums can differ between ranks, or ProgramError if the algorithm is not correct."""
    if not is_bitwise_identical(algorithm, world_size):
        raise InputError(
            f"{algorithm.full_name}: its {world_size} ranks add in different orders, so model "
            "replicas would diverge; use another algorithm, for example 'ring'"
        )


class SymbolicRun:
    """The state of a symbolic run: the contributors, origins and reduction orders of all chunks of all ranks."""

    def __init__(self, schedule: Schedule) -> None:
        number = schedule.world_size * schedule.total
        excess = f"{schedule.describe()}: all ranks together have {number:,} chunks, including scratch, which are too"
        check_fits(number, Gigabyte.FOLLOWED, f"{excess} many to track one by one", "declare fewer")
        self.schedule = schedule
        self.spec = schedule.algorithm.spec
        self.match = schedule.match.tolist()
        self.first = _first_indices(schedule)
        self.who = [self._start(rank) for rank in range(schedule.world_size)]
        origins = [*range(schedule.chunks), *[-1] * schedule.scratch]
        self.origin = [list(origins) for _ in range(schedule.world_size)]
        self.order = [[rank] * schedule.total for rank in range(schedule.world_size)]  # a rank's own data
        self.compares_orders = self.spec.is_shared
        self.sums: dict[tuple[int, int], int] = {}  # number of each sum, by the numbers of its two terms
        self.mistakes: list[tuple[int, str]] = []  # index of the operation, and the problem
        self.everyone = (1 << schedule.world_size) - 1
        self.landings: list[Landing] | None = None  # recorded only to explain a wrong result
        self.in_flight: dict[int, ChunkValues] = {}  # by index of the send
        for rank, channels in enumerate(schedule.programs):
            for channel in range(len(channels)):
                self._post(rank, channel, 0)

    def _start(self, rank: int) -> list[int]:
        spec, p = self.spec, self.schedule.world_size
        parts = self.parts(spec.start, rank)
        chunks = self.schedule.chunks
        return [*(parts[chunk * p // chunks] for chunk in range(chunks)), *[0] * self.schedule.scratch]

    def parts(self, contents: Contents, rank: int) -> list[int]:
        p, root = self.schedule.world_size, self.schedule.root
        if not self.spec.has_parts:
            return [_bits(contents(rank, 0, p, root))] * p
        return [_bits(contents(rank, part, p, root)) for part in range(p)]

    def _post(self, rank: int, channel: int, step: int) -> None:
        """Post a step: save the current content of the chunks that it sends."""
        program = self.schedule.programs[rank][channel]
        if step < len(program):
            first = self.first[rank][channel][step]
            for index, op in enumerate(program[step], first):
                if op.kind is SEND:
                    self.in_flight[index] = self._read(rank, index, op)

    def _read(self, rank: int, index: int, op: Operation) -> ChunkValues:
        chunks = slice(op.chunk, op.chunk + op.count)
        values = self.who[rank][chunks]
        if 0 in values:
            mistake = self._mistake(index, self._empty(op.chunk + values.index(0)))
            values = [value or mistake for value in values]
        return values, self.origin[rank][chunks], self.order[rank][chunks]

    def _mistake(self, index: int, problem: str) -> int:
        """Record a mistake and return its bit. After ``MOST_MISTAKES``, all further mistakes share one bit."""
        if len(self.mistakes) < MOST_MISTAKES:
            self.mistakes.append((index, problem))
        return 1 << self.schedule.world_size + len(self.mistakes) - 1

    def complete(self, rank: int, channel: int, step: int) -> None:
        """Complete a step: write the data that it receives, copies and reduces. Then post the channel's next step."""
        landing, match = [], self.match
        who, origin, order = self.who[rank], self.origin[rank], self.order[rank]
        for index, op in enumerate(self.schedule.programs[rank][channel][step], self.first[rank][channel][step]):
            if op.kind is not SEND:
                other = match[index]
                landing.append((index, op, self.in_flight.pop(other) if other >= 0 else self._read(rank, index, op)))
        for index, op, (values, origins, orders) in landing:
            if op.kind in COMBINING:
                values = self._reduce(rank, index, op, values, origins)
                if self.compares_orders:
                    orders = self._add(order[op.into : op.into + op.count], orders)
            if self.landings is not None:
                self._keep(rank, index, op, values, origins)
            if op.count == 1:
                who[op.into], origin[op.into], order[op.into] = values[0], origins[0], orders[0]
            else:
                chunks = slice(op.into, op.into + op.count)
                who[chunks], origin[chunks], order[chunks] = values, origins, orders
        self._post(rank, channel, step + 1)

    def _keep(self, rank: int, index: int, op: Operation, values: list[int], origins: list[int]) -> None:
        assert self.landings is not None
        for chunk, after, origin in zip(op.target, values, origins, strict=True):
            before = self.who[rank][chunk] & self.everyone
            after &= self.everyone
            brought = after & ~before if op.kind in COMBINING and not self.spec.repeats else after
            self.landings.append(Landing(index, chunk, origin, before, brought, after))

    def _reduce(self, rank: int, index: int, op: Operation, values: list[int], origins: list[int]) -> list[int]:
        before = self.who[rank][op.into : op.into + op.count]
        at = self.origin[rank][op.into : op.into + op.count]
        if 0 not in before and at == origins and (self.spec.repeats or not any(map(and_, before, values))):
            return [*map(or_, before, values)]
        results = []
        for chunk, current, other, here, origin in zip(op.target, before, values, at, origins, strict=True):
            twice = 0 if self.spec.repeats else current & other & self.everyone
            problem = ""
            if current == 0:
                problem = f"{self._empty(chunk)}, so nothing can be reduced into it"
            elif here != origin:
                problem = f"data of chunk {origin} would be added to data of chunk {here}"
            elif twice:
                problem = (
                    f"the contribution of {_ranks_of(twice)} would be counted twice: chunk {chunk} already "
                    f"holds {_ranks_of(current & self.everyone)} and {_ranks_of(other & self.everyone)} would be added"
                )
            results.append(current | other | (self._mistake(index, problem) if problem else 0))
        return results

    def _add(self, current: list[int], brought: list[int]) -> list[int]:
        sums, p = self.sums, self.schedule.world_size
        return [
            sums.setdefault((order, other) if order < other else (other, order), p + len(sums))
            for order, other in zip(current, brought, strict=True)
        ]

    def has_one_order(self) -> bool:
        chunks = self.schedule.chunks
        return not self.spec.is_shared or all(order[:chunks] == self.order[0][:chunks] for order in self.order)

    def check_end(self) -> None:
        """Raise ProgramError if a rank does not end with the data that its collective defines."""
        wrong = list(self._wrong_chunks())
        reached = [
            value & -value for mistake in wrong if (value := self.who[mistake.rank][mistake.chunk] & ~self.everyone)
        ]
        if wrong and self.mistakes:
            raise self.describe(min(reached).bit_length() - 1 - self.schedule.world_size if reached else 0)
        if wrong:
            raise self._explain(wrong[0])

    def describe(self, mistake: int) -> ProgramError:
        index, problem = self.mistakes[mistake]
        receives = bool(self.schedule.kind[index] != SEND and self.schedule.match[index] >= 0)
        return self.schedule.refuse(index, f": {problem}", lands=receives)

    def _wrong_chunks(self) -> Iterator[WrongChunk]:
        spec, p, chunks = self.spec, self.schedule.world_size, self.schedule.chunks
        for rank, (who, origins) in enumerate(zip(self.who, self.origin, strict=True)):
            wanted = self.parts(spec.end, rank)
            for chunk in range(chunks):
                part = chunk * p // chunks
                if wanted[part]:
                    origin = chunk + (spec.origin(rank, part) - part) * chunks // p
                    if who[chunk] != wanted[part] or origins[chunk] != origin:
                        yield WrongChunk(rank, chunk, wanted[part], origin)

    def _explain(self, wrong: WrongChunk) -> ProgramError:
        rank, chunk, expected, origin = wrong
        value, source = self.who[rank][chunk], self.origin[rank][chunk]
        landings = self._replay() if self.schedule.steps else []
        if self.spec.moves:
            holds = self._data(value, source) if value else "nothing"
            why = explain_other(self.schedule, landings, rank, chunk)
            problem = f"holds {holds}; it should hold {self._data(expected, origin)}"
            return self._wrong_end(rank, chunk, problem, why)
        why = f": {explain_missing(self.schedule, landings, rank, chunk, expected & ~value)}"
        if value == 0:
            return self._wrong_end(rank, chunk, f"holds nothing; it should hold {self._data(expected, origin)}", why)
        return self._wrong_end(rank, chunk, f"lacks the contribution of {_ranks_of(expected & ~value)}", why)

    def _replay(self) -> list[Landing]:
        again = SymbolicRun(self.schedule)
        again.landings = []
        for done in completion_order(self.schedule):
            again.complete(*done)
        return again.landings

    def _data(self, ranks: int, origin: int) -> str:
        return f"chunk {origin} of {_ranks_of(ranks)}" if self.spec.moves else f"the data of {_ranks_of(ranks)}"

    def _empty(self, chunk: int) -> str:
        scratch = chunk >= self.schedule.chunks
        why = "scratch is undefined at the start" if scratch else self.spec.beginning.format(root=self.schedule.root)
        return f"chunk {chunk} holds nothing yet ({why})"

    def _wrong_end(self, rank: int, chunk: int, problem: str, why: str) -> ProgramError:
        schedule = self.schedule
        if not schedule.steps:
            line = schedule.algorithm.find_line(None, schedule.world_size, schedule.root)
            why = "; no rank yields a step (`yield` a step, `yield from` another program)" + (line and f" ({line})")
        message = f"{schedule.describe()}: at the end chunk {chunk} of rank {rank} {problem}{why}"
        return ProgramError(message, schedule.world_size, rank)


def _first_indices(schedule: Schedule) -> list[list[list[int]]]:
    """Return the index of each step's first operation in the schedule; shape [rank][channel][step]."""
    index, first = 0, list[list[list[int]]]()
    for channels in schedule.programs:
        first.append([])
        for program in channels:
            first[-1].append([])
            for step in program:
                first[-1][-1].append(index)
                index += len(step)
    return first


def _bits(ranks: Contributors | None) -> int:
    if not ranks:
        return 0
    return sum([1 << rank for rank in ranks]) if len(ranks) > 1 else 1 << next(iter(ranks))
