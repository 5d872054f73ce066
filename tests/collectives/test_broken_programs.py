"""Reject wrong programs, and the gallery of broken ones, with rank, step, chunk and peer."""

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from declared_programs import declared

from collectives import Algorithm, InputError, ProgramError, algorithm, copy, on_group, recv, recv_reduce, send, verify
from collectives.algorithms.naive import naive_broadcast, naive_reduce
from collectives.algorithms.ring import ring_all_gather
from collectives.catalogue import load_file
from collectives.step import Kind, Operation
from collectives.verdict import prove
from ringlab.shared.ranges import parse_world_sizes

# mypy: allow-untyped-defs


IN_LINES = re.compile(  # the lines in messages
    r"(, up to its last step, \d+)?(, as it yields no step)? ?\((it begins in )?line \d+ of \w+\.py\)|, line \d+(?=\))"
)


def refusal(collective: str, function: Callable[..., Any], world_size: int, root: int = 0, **options: Any) -> str:
    with pytest.raises(ProgramError) as failure:
        verify(declared(collective, function, name="wrong", **options), world_size, root)
    assert failure.value.world_size == world_size
    return IN_LINES.sub("", str(failure.value))


def test_deadlock_error_names_only_the_deadlocked_ranks() -> None:
    def wrong(rank, world_size):
        if rank < 2:
            yield recv_reduce(1 - rank, 0)
            yield send(1 - rank, 0)

    message = refusal("all_reduce", wrong, 4, chunks=1)
    assert "rank 0 in step 0 waits for rank 1 in recv_reduce(from rank 1, chunk 0)" in message
    assert "rank 2" not in message


def skips_a_step(rank, world_size):
    left, right = (rank - 1) % world_size, (rank + 1) % world_size
    for step in range(world_size - 2):
        yield send(right, (rank - 1 - step) % world_size), recv_reduce(left, (rank - 2 - step) % world_size)
    yield from ring_all_gather(rank, world_size)


def reduces_only(rank, world_size):
    yield send((rank + 1) % world_size, rank), recv_reduce((rank - 1) % world_size, (rank - 1) % world_size)


def overwrites_its_own(rank, world_size):
    yield send(1, 0) if rank == 0 else recv(0, 0)
    yield recv(1, 0) if rank == 0 else send(0, 0)


def forgets_the_last(rank, world_size, root):
    yield from naive_broadcast(rank, world_size - 1, root) if rank < world_size - 1 else ()


def overwrites_others(rank, world_size, root):
    for peer in range(world_size):
        if peer != root and rank in (root, peer):
            yield recv(peer, 0) if rank == root else send(root, 0)


def ignores_the_root(rank, world_size, root):
    yield from naive_reduce(rank, world_size, 0)


def mixes_chunks(rank, world_size):
    yield send(1 - rank, 0), recv_reduce(1 - rank, 1)


@pytest.mark.parametrize(
    ("collective", "program", "world_size", "root", "chunks", "message"),
    [
        ("all_reduce", skips_a_step, 4, 0, None,
         "of ranks 1, 2, 3: that of rank 1 last reached rank 3, in step 1, which never forwards it; rank 0 never rec"),
        *((collective, reduces_only, 2, 0, None,
           "rank 1 never sends chunk 0 (it has data of ranks 0, 1 since step 0); rank 0 never receives chunk 0")
          for collective in ("all_reduce", "reduce_scatter")),
        ("all_reduce", overwrites_its_own, 2, 0, 1,
         "rank 1 does not send its own data before step 0, where recv(from rank 0, chunk 0) puts the data of rank 0 "
         "in its place; rank 0 receives chunk 0 last in step 1, where recv(from rank 1, chunk 0) brings the data of "),
        ("broadcast", forgets_the_last, 3, 0, 1,
         "at the end chunk 0 of rank 2 holds nothing; it should hold the data of rank 0: it last reached rank 1, in "
         "step 0, which never forwards it; rank 2 never receives chunk 0"),
        ("reduce", overwrites_others, 3, 0, 1,
         "at the end chunk 0 of rank 0 lacks the contribution of ranks 0, 1: rank 0 had that of rank 0 until step 0, "
         "where recv(from rank 1, chunk 0) put the data of rank 1 in its place"),
        ("reduce", ignores_the_root, 3, 2, 1,
         "reduce/wrong, world size 3, root 2: at the end chunk 0 of rank 2 lacks the contribution of ranks 0, 1: "),
        ("all_to_all", mixes_chunks, 2, 0, None,
         "rank 1, step 0: recv_reduce(from rank 0, chunk 1): data of chunk 0 would be added to data of chunk 1"),
    ],
)  # fmt: skip
def test_error_explains_a_wrong_result(
    collective: str, program: Any, world_size: int, root: int, chunks: int | None, message: str
) -> None:
    assert message in refusal(collective, program, world_size, root, chunks=chunks)


@pytest.mark.parametrize(
    ("op", "problem"),
    [
        (copy(2, into=5, count=2), "copy(chunk 2..3 into 5): chunks must not span both buffer and scratch"),
        (send(3, 0), "send(to rank 3, chunk 0): rank 3 does not exist; ranks are 0..2"),
        (send(1, 2, count=2), "send(to rank 1, chunk 2..3): chunk 3 does not exist; chunks are 0..2"),
        (Operation(Kind.SEND, 1, 0, 0, -1), "send(to rank 1, chunk 0): count must be at least 1"),
        (send(0, 0), "send(to rank 0, chunk 0): a rank never sends to itself; use copy or reduce"),
        (Operation(Kind.SEND, 1, 0.5, 1, -1), "send: 0.5 is not an integer; peers, chunks and counts must be integers"),
    ],
)
def test_error_locates_an_invalid_operation(op: Operation, problem: str) -> None:
    def wrong(rank, world_size):
        if rank == 0:
            yield ()
            yield op

    message = refusal("all_reduce", wrong, 3, scratch=6 * ("scratch" in problem))
    assert message.startswith(f"all_reduce/wrong, world size 3, rank 0, step 1: {problem}")


def test_keyboard_interrupt_in_a_program_is_raised() -> None:
    def wrong(rank, world_size):
        yield ()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        verify(declared("all_reduce", wrong), 2)


def test_error_raised_for_a_world_size_is_reported() -> None:
    def wrong(rank, world_size):
        if world_size % 2:
            raise InputError(f"world size {world_size} is odd; the ranks work in pairs")
        yield ()

    assert refusal("all_reduce", wrong, 3).endswith("rank 0, step 0: world size 3 is odd; the ranks work in pairs")


@pytest.mark.parametrize("returned", [5, [send(1, 0)], (), (None, 3)])
def test_program_that_is_not_a_generator_is_rejected(returned: object) -> None:
    def wrong(rank, world_size):
        return returned

    assert refusal("all_reduce", wrong, 2).startswith(
        "all_reduce/wrong, world size 2, rank 0, step 0: the program of a rank must yield steps, not return "
    )


def test_group_chunks_that_are_not_contiguous_are_rejected() -> None:
    def pair(rank):
        yield send(1 - rank, 0, count=2), recv_reduce(1 - rank, 0, count=2)

    def wrong(rank, world_size):
        yield from on_group(pair(rank), range(2), stride=2)

    message = "send(to rank 1, chunk 0..1): with stride 2, the 2 chunks are not contiguous; use stride 1"
    assert refusal("all_reduce", wrong, 2, chunks=4).endswith(message)


GALLERY = Path(__file__).parent / "broken.py"
CAUGHT = {  # smallest failing world size (from 2 on) and root, and the message
    "crashes": (2, 0, r"rank 0, step 0: .* fails with ZeroDivisionError: integer modulo by zero \(line LINE of"),
    "double_count": (3, 0, r"rank 0, step 1 \(line LINE .*contribution of rank 0 would be counted twice"),
    "empty_scratch": (2, 0, r"rank 1, step 0 \(line LINE .*: chunk 1 holds nothing yet \(scratch is undefined"),
    "off_by_one_chunk": (2, 0, r"step 0 \(line LINE .* matches recv.* in step 0 \(line LINE .*the same chunk of"),
    "off_by_one_step": (2, 0, r"chunk 0 of rank 0 lacks the contribution of rank 1; no rank yields .*\(line LINE"),
    "other_place": (2, 0, r"rank 0, step 0 \(line LINE .*: copy\(chunk 0 into 1\): both must be the same chunk"),
    "overlapping_channels": (2, 0, r"channel 1, step 0 \(line LINE .*: channel 0 also uses chunk 1"),
    "send_before_receive": (2, 0, r"deadlock: rank 0 in step 0 \(line LINE .* waits for rank 1 .*: yield send\("),
    "token_lost": (3, 0, r"of rank 1: it last reached rank 2, in step 0 \(line LINE .*, which never forwards it; "),
    "too_few_chunks": (2, 0, r"the number of chunks must be a multiple of the 2 ranks, not 1 \(line LINE of"),
    "uneven_sizes": (2, 0, r"rank 0, step 0 \(line LINE .*chunk 0\.\.1\).* both must have the same count"),
    "unmatched_receive": (2, 0, r"rank 0, step 0 \(line LINE .* has no match: rank 1 sends no message to rank 0"),
    "written_twice": (2, 0, r"rank 0, step 0 \(line LINE of .*: chunk 0 is written twice in one step"),
    "wrong_place": (3, 0, r"holds chunk 0 of rank 2; it should hold chunk 0 of rank 1; .*\(line LINE of"),
    "wrong_root": (2, 1, r"rank 0, step 0 \(line LINE .*holds nothing yet \(only the root, rank 1, starts with"),
}


@cache
def broken_programs() -> dict[str, Algorithm]:
    return {algorithm.name: algorithm for algorithm in load_file(GALLERY)}


def marked_line(name: str) -> int:
    """Return the line of a program in the gallery with the comment that marks its mistake."""
    before, _, program = GALLERY.read_text().partition(f"def {name}(")
    of_program = f"{before.splitlines()[-1]}\n{program.partition('@algorithm')[0]}".partition("# here")[0]
    return before.count("\n") + of_program.count("\n")


@pytest.mark.parametrize("name", CAUGHT)
def test_proof_finds_the_smallest_world_size_that_fails(name: str) -> None:
    verdict = prove(broken_programs()[name], parse_world_sizes("1-33"))
    world_size, root, message = CAUGHT[name]
    message = message.replace("LINE", str(marked_line(name)))
    assert verdict.counter_example is not None and verdict.problem is not None
    assert (verdict.counter_example["world_size"], verdict.counter_example["root"]) == (world_size, root)
    assert f"/{name}, world size {world_size}" in verdict.problem and re.search(message, verdict.problem)
    assert all(report.world_size < world_size for report in verdict.reports)


def test_error_at_a_world_size_names_correct_world_sizes() -> None:
    assert broken_programs().keys() == CAUGHT.keys()
    alone = prove(broken_programs()["empty_scratch"], [1]).problem
    assert alone is not None and "world size 1" in alone and "it is correct" not in alone

    def to_itself(rank, world_size):  # type: ignore[no-untyped-def]
        yield send((rank + 1) % world_size, 0), recv_reduce((rank + 1) % world_size, 0)

    program: Algorithm = algorithm("all_reduce", chunks=1)(to_itself)
    verdict = prove(program, [1, 2])
    assert verdict.problem is not None and verdict.counter_example == {"world_size": 1, "root": 0, "rank": 0, "step": 0}
    assert verdict.problem.endswith("use copy or reduce; it is correct with 2 ranks")
