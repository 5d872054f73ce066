"""Compare schedules built from few runs of a program with schedules built from a run per rank."""

import operator
import sys
from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectives import InputError, ProgramError, library
from collectives.catalogue import load_file
from collectives.declaration import Algorithm
from collectives.schedule.build import build_schedule
from collectives.schedule.schedule import OperationColumns, StepTable
from collectives.schedule.symbolic_build import MOST_BRANCHES, SMALL, build_by_branch, build_compact, build_symmetric
from collectives.spec import find_spec
from collectives.step import Program, copy, recv, recv_reduce, reduce, send
from collectives.symbolic_rank import LARGEST, Diverges, ShiftedRank, VectorRank, vectorize

OPERATORS = ["add", "sub", "mul", "floordiv", "mod", "and_", "or_", "xor", "lshift", "rshift", "eq", "lt", "ge"]


def assert_same(table: StepTable, wanted: StepTable) -> None:
    for name, column, other in zip(OperationColumns._fields, table.columns, wanted.columns, strict=True):
        assert np.array_equal(column, other), name
    assert (table.chunks, table.scratch, table.channels) == (wanted.chunks, wanted.scratch, wanted.channels)


def here(program: Callable[..., Any], chunks: Any = None, scratch: Any = 0) -> Algorithm:
    return Algorithm(find_spec("all_reduce"), program.__name__, program, chunks, scratch)


@pytest.mark.parametrize("name", library())
@pytest.mark.parametrize("p", [1, 2, 3, 6, 16, pytest.param(33, marks=pytest.mark.slow)])
def test_schedule_builders_agree_on_every_library_algorithm(name: str, p: int):
    algorithm = library()[name]
    for root in {0, p - 1} if algorithm.spec.rooted else {0}:
        try:
            wanted = build_schedule(algorithm, p, root).table()
        except InputError as refused:
            with pytest.raises(type(refused)):
                build_compact(algorithm, p, root).table()
            continue
        cyclic, branches = build_symmetric(algorithm, p, root), build_by_branch(algorithm, p, root)
        assert_same(build_compact(algorithm, p, root).table(), wanted)
        for table in (cyclic and cyclic.table(), branches):
            if table is not None:
                assert_same(table, wanted)


ABSOLUTE = """
from collectives import algorithm, recv, send


def to_all(rank, world_size, first):
    others = [peer for peer in range(world_size) if peer != rank]
    messages = [(send(peer, first + peer), recv(peer, first + peer)) for peer in others]
    if rank + 1 == world_size:
        yield tuple(sent for sent, _ in messages)
        yield tuple(received for _, received in messages)
    else:
        yield tuple(operation for pair in messages for operation in pair)


@algorithm("all_to_all", name="absolute", chunks=lambda world_size: 2 * world_size)
def absolute(rank, world_size):
    return to_all(rank, world_size, 0), to_all(rank, world_size, world_size)
"""


@pytest.mark.parametrize("p", [MOST_BRANCHES - 1, MOST_BRANCHES + 1, pytest.param(SMALL + 1, marks=pytest.mark.slow)])
def test_user_file_and_function_give_equal_schedule_tables(tmp_path, p: int):
    (tmp_path / "my.py").write_text(ABSOLUTE, encoding="utf-8")
    (of_file,) = load_file(tmp_path / "my.py")
    names: dict[str, Any] = {}
    exec(ABSOLUTE, names)
    wanted = build_schedule(names["absolute"], p).table()
    for table in (build_by_branch(of_file, p), build_by_branch(names["absolute"], p)):
        assert table is not None
        assert_same(table, wanted)
    assert (of_file.find_line((0, 0, 0), p), of_file.find_line((p - 1, 1, 1), p)) == (
        "line 12 of my.py",
        "line 10 of my.py",
    )


@given(random=st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None)
def test_schedule_builders_agree_on_random_programs(random: Random):
    p = random.choice([2, 3, 4, 5, 8, 13, 16])
    algorithm = here(drawn_program(random, p), scratch=p)
    assert_same(build_compact(algorithm, p).table(), build_schedule(algorithm, p).table())


def drawn_program(random: Random, p: int) -> Callable[[int, int], Program]:
    """Return a program of three pieces, with and without branches on the rank."""
    pieces = [(piece, random.randrange(1, p), random.randrange(p)) for piece in random.choices(PIECES, k=3)]

    def drawn(rank: int, world_size: int) -> Program:
        for piece, away, chunk in pieces:
            yield from piece(rank, world_size, away, chunk)

    return drawn


def _up(rank: int, p: int, away: int, chunk: int) -> Program:
    mine, theirs = (rank + chunk) % p, (rank - away + chunk) % p
    yield send((rank + away) % p, mine), recv_reduce((rank - away) % p, theirs)
    yield copy(mine, into=p + mine)


def _halves(rank: int, p: int, away: int, chunk: int) -> Program:
    half = p // 2
    if rank < half:
        yield send(rank + half, chunk)
    elif rank < 2 * half:
        peer = rank
        peer -= half  # not in place: the rank stays
        yield recv(peer, chunk)
        yield reduce(rank - peer - half + chunk, into=p + chunk)


def _pairs(rank: int, p: int, away: int, chunk: int) -> Program:
    pair, odd = divmod(rank, 2)
    if 2 * pair + 1 < p:
        both = (odd == 0) + (odd == 1)
        yield send(rank ^ 1, chunk, both), recv(rank ^ 1, p + chunk)


PIECES = [_up, _halves, _pairs]


def nowhere(rank: int, world_size: int) -> Program:
    yield send((rank + 1) % world_size, rank), recv((rank - 1) % world_size, (rank - 1) % world_size)
    yield send((rank + 1) % world_size, rank + 1), recv((rank - 1) % world_size, rank)


def twice(rank: int, world_size: int) -> Program:
    left = (rank - 1) % world_size
    yield send((rank + 1) % world_size, 0), send((rank + 1) % world_size, 0), recv(left, 0), recv(left, 0)


def endless(rank: int, world_size: int) -> Program:
    while True:
        yield copy(0, into=world_size)


def leaves(rank: int, world_size: int) -> Program:
    yield send((rank + 1) % world_size, 0), recv((rank - 1) % world_size, 0)
    sys.exit()


REFUSED = [(nowhere, 0), (twice, 4), (endless, 4), (leaves, 0)]


@pytest.mark.parametrize(("program", "scratch"), REFUSED)
def test_vectorized_and_scalar_checks_raise_equal_messages(program: Any, scratch: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("collectives.schedule.schedule.MOST_STEPS", 50)
    with pytest.raises(ProgramError) as plain:
        build_schedule(here(program, scratch=scratch), 4)
    with pytest.raises(ProgramError) as quick:
        build_compact(here(program, scratch=scratch), 4).table()
    assert str(quick.value) == str(plain.value)


@given(
    name=st.sampled_from(OPERATORS),
    left=st.lists(st.integers(-40, 40), min_size=2, max_size=5),
    right=st.integers(-40, 40) | st.lists(st.integers(-40, 40), min_size=5, max_size=5),
    turned=st.booleans(),
)
@settings(max_examples=120, deadline=None)
def test_vectorized_ranks_compute_like_integers(name: str, left: list[int], right: int | list[int], turned: bool):
    function = getattr(operator, name)
    rights = [right] * len(left) if isinstance(right, int) else right[: len(left)]
    vector: Any = vectorize(np.array(left))
    other: Any = right if isinstance(right, int) else vectorize(np.array(rights))
    try:
        wanted = [int(function(b, a) if turned else function(a, b)) for a, b in zip(left, rights, strict=True)]
        if name in ("lshift", "rshift") and any(abs(shift) > 30 for shift in (left if turned else rights)):
            return
    except (ZeroDivisionError, ValueError):
        if isinstance(vector, VectorRank) or isinstance(other, VectorRank):
            with pytest.raises((TypeError, ZeroDivisionError, ValueError)):
                function(other, vector) if turned else function(vector, other)
        return
    if len(set(wanted)) > 1 and max(map(abs, wanted)) > LARGEST:
        with pytest.raises(TypeError):
            function(other, vector) if turned else function(vector, other)
        return
    result = function(other, vector) if turned else function(vector, other)
    assert (result.values.tolist() if isinstance(result, VectorRank) else [int(result)] * len(left)) == wanted


@given(random=st.randoms(use_true_random=False))
@settings(max_examples=120, deadline=None)
def test_symmetric_schedules_equal_plain_schedules(random: Random):
    """Programs have chunks that depend on the rank or not, strides, and one or two channels."""
    p = random.choice([2, 3, 4, 6])
    chunks, scratch = random.choice([1, 2, p, 2 * p, 4 * p]), random.choice([0, 0, p, 2 * p])
    collective = random.choice(["all_reduce", "barrier"])
    channels = [_cyclic_channel(random, p, chunks + scratch) for _ in range(random.choice([1, 1, 2]))]

    def program(rank: int, world_size: int) -> Any:
        return tuple((_said(rank, p, ops) for ops in steps) for steps in channels)

    algorithm = Algorithm(find_spec(collective), "drawn", program, chunks, scratch)
    cyclic = build_symmetric(algorithm, p)
    if cyclic is not None:
        assert_same(cyclic.table(), build_schedule(algorithm, p).table())


def _cyclic_channel(random: Random, p: int, total: int) -> list[Any]:
    """Return steps of exchanges: kind, distance, and the chunk relative to the rank."""
    stride, base = random.choice([0, 1, 1, 2]), random.choice([0, 0, 1, p, total - 1])
    steps = []
    for _ in range(random.randint(1, 3)):
        away, shift = random.randrange(1, p), random.randrange(p)
        if random.random() < 0.2:
            stride, base = random.choice([0, 1, 2]), random.choice([0, 1, p])
        steps.append((random.choice(["recv", "recv_reduce", "copy"]), away, shift, stride, base, random.randrange(3)))
    return steps


def _said(rank: Any, p: int, ops: Any) -> Any:
    kind, away, shift, stride, base, odd = ops

    def chunk(of: Any) -> Any:
        return stride * ((of + shift) % p) + base if stride else base + 0 * odd

    if kind == "copy":
        return copy(chunk(rank), into=chunk(rank) + odd)
    back = (rank - away) % p
    return send((rank + away) % p, chunk(rank)), (recv if kind == "recv" else recv_reduce)(back, chunk(back))


@given(p=st.integers(2, 9), numbers=st.lists(st.integers(-30, 30), min_size=1, max_size=4))
def test_arithmetic_on_a_symbolic_rank_matches_each_rank(p: int, numbers: list[int]):
    shifts: list[Any] = [ShiftedRank(p)]
    values = [list(range(p))]
    for number in numbers:
        times = 1 + number % 3
        shifts.append(number + (shifts[-1] - 2 * number) % (p * shifts[-1].stride) * times + 3)
        values.append([number + (value - 2 * number) % (p * shifts[-2].stride) * times + 3 for value in values[-1]])
    for shift, each in zip(shifts, values, strict=True):
        assert [(rank + shift.shift) % p * shift.stride + shift.base for rank in range(p)] == each
        for bound in numbers:
            for compare in (operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne):
                answers = {compare(value, bound) for value in each}
                try:
                    assert {compare(shift, bound)} == answers
                except Diverges:
                    assert len(answers) == 2 or compare in (operator.eq, operator.ne)
