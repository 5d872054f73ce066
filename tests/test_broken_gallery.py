"""The gallery of broken programs: each is caught at its smallest world size and root, with a message to act on."""

import re
from pathlib import Path

import pytest

from collectives import Algorithm, algorithm, recv_reduce, send
from collectives.catalogue import load_file
from collectives.verdict import prove
from ringlab.shared.ranges import parse_world_sizes

GALLERY = Path(__file__).parent / "broken"
CAUGHT = {  # smallest world size and root, but for one rank, and where and what is told to be wrong
    "crashes": (2, 0, r"rank 0, step 0: .* fails with ZeroDivisionError: integer modulo by zero \(line 9 of"),
    "double_count": (3, 0, r"rank 0, step 1 \(line 10 .*contribution of rank 0 would be counted twice"),
    "empty_scratch": (2, 0, r"rank 1, step 0 \(line 8 .*: chunk 1 holds nothing yet \(scratch is undefined"),
    "off_by_one_chunk": (2, 0, r"step 0 \(line 10 .* meets in its step 0 \(line 10 .*different chunks of"),
    "off_by_one_step": (2, 0, r"chunk 0 of rank 0 misses the contribution of rank 1; no rank yields .*\(line 6"),
    "other_place": (2, 0, r"rank 0, step 0 \(line 9 .*: copy\(chunk 0 into 1\): these are different chunks"),
    "overlapping_channels": (2, 0, r"channel 1, step 0 \(line 7 .*: chunk 1 belongs to channel 0, which uses it"),
    "send_before_receive": (2, 0, r"deadlock: rank 0 in step 0 \(line 10 .* waits for rank 1 .*: yield send\("),
    "token_lost": (3, 0, r"of rank 1: it came last to rank 2, in step 0 \(line 9 .*, which never sends it on; "),
    "too_few_chunks": (2, 0, r"cuts the buffer into 1 chunk; scatter needs a multiple of 2, .*\(line 6 of"),
    "uneven_sizes": (2, 0, r"rank 0, step 0 \(line 9 .*chunk 0\.\.1\).* they disagree on how many chunks travel"),
    "unmatched_receive": (2, 0, r"rank 0, step 0 \(line 10 .* meets nothing: rank 1 sends no message to rank 0"),
    "written_twice": (2, 0, r"rank 0, step 0 \(line 11 of .*: chunk 0 is written twice in one step"),
    "wrong_place": (3, 0, r"holds chunk 0 of rank 2; it should hold chunk 0 of rank 1; .*\(line 11 of"),
    "wrong_root": (2, 1, r"rank 0, step 0 \(line 11 .*holds nothing yet \(only the root, rank 1, starts with"),
}


def test_every_broken_program_is_here() -> None:
    assert {path.stem for path in GALLERY.glob("*.py")} == CAUGHT.keys()


@pytest.mark.parametrize("name", CAUGHT)
def test_the_shortest_counter_example_is_told(name: str) -> None:
    (found,) = load_file(GALLERY / f"{name}.py")
    verdict = prove(found, parse_world_sizes("1-33"))
    world_size, root, said = CAUGHT[name]
    assert verdict.counter_example is not None and verdict.problem is not None
    assert (verdict.counter_example["world_size"], verdict.counter_example["root"]) == (world_size, root)
    assert f"/wrong, world size {world_size}" in verdict.problem and re.search(said, verdict.problem)
    assert all(report.world_size < world_size for report in verdict.reports)


@pytest.mark.parametrize("name", CAUGHT)
def test_what_is_smaller_is_right(name: str) -> None:
    (found,) = load_file(GALLERY / f"{name}.py")
    world_size, *_ = CAUGHT[name]
    assert prove(found, range(1 if name != "empty_scratch" else 2, world_size)).problem is None


def test_what_fails_alone_and_together_is_told_of_two_ranks_and_what_fails_alone_only_with_a_hint() -> None:
    (found,) = load_file(GALLERY / "empty_scratch.py")
    alone = prove(found, [1]).problem
    assert alone is not None and "world size 1" in alone and "it is right" not in alone

    def to_itself(rank, world_size):  # type: ignore[no-untyped-def]
        yield send((rank + 1) % world_size, 0), recv_reduce((rank + 1) % world_size, 0)

    program: Algorithm = algorithm("all_reduce", chunks=1)(to_itself).__algorithm__  # type: ignore[attr-defined]
    verdict = prove(program, [1, 2])
    assert verdict.problem is not None and verdict.counter_example == {"world_size": 1, "root": 0, "rank": 0, "step": 0}
    assert verdict.problem.endswith("use copy or reduce; with 2 ranks it is right")
