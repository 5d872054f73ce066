"""The gallery of broken programs: each is caught at its smallest world size and root, with a message to act on."""

from pathlib import Path

import pytest

from collectives import Algorithm, algorithm, recv_reduce, send
from collectives.catalogue import load_file
from collectives.verdict import prove
from ringlab.shared.ranges import parse_world_sizes

GALLERY = Path(__file__).parent / "broken"
CAUGHT = {  # smallest world size and root, but for one rank, and what is said
    "crashes": (
        (2, 0),
        "broadcast/wrong, world size 2, root 0, rank 0, step 0: the program fails with ZeroDivisionError: "
        "integer modulo by zero (line 9 of crashes.py)",
    ),
    "double_count": (
        (3, 0),
        "all_reduce/wrong, world size 3, rank 0, step 1 (line 10 of double_count.py): recv_reduce(from rank"
        " 1, chunk 0): the contribution of rank 0 would be counted twice: chunk 0 already holds ranks 0, 2 "
        "and ranks 0, 1 would be added",
    ),
    "empty_scratch": (
        (2, 0),
        "all_reduce/wrong, world size 2, rank 1, step 0 (line 8 of empty_scratch.py): reduce(chunk 0 into "
        "1): chunk 1 holds nothing yet (scratch is undefined at the start), so nothing can be reduced into "
        "it",
    ),
    "off_by_one_chunk": (
        (2, 0),
        "all_reduce/wrong, world size 2, rank 0, step 0 (line 10 of off_by_one_chunk.py): send(to rank 1, "
        "chunk 0), message 0 of rank 0 to rank 1, meets in its step 0 (line 10 of off_by_one_chunk.py) "
        "recv_reduce(from rank 0, chunk 1): these are different chunks of the buffer; data keeps its place",
    ),
    "off_by_one_step": (
        (2, 0),
        "reduce_scatter/wrong, world size 2: at the end chunk 0 of rank 0 misses the contribution of rank "
        "1; no rank yields a step (`yield` a step, `yield from` another program) (line 6 of "
        "off_by_one_step.py)",
    ),
    "other_place": (
        (2, 0),
        "all_gather/wrong, world size 2, rank 0, step 0 (line 9 of other_place.py): copy(chunk 0 into 1): "
        "these are different chunks of the buffer; data keeps its place",
    ),
    "overlapping_channels": (
        (2, 0),
        "all_reduce/wrong, world size 2, rank 0, channel 1, step 0 (line 7 of overlapping_channels.py): "
        "send(to rank 1, chunk 1): chunk 1 belongs to channel 0, which uses it too; channels of a rank "
        "touch different chunks",
    ),
    "send_before_receive": (
        (2, 0),
        "all_reduce/wrong, world size 2: deadlock: rank 0 in step 0 (line 10 of send_before_receive.py) "
        "waits for rank 1 in send(to rank 1, chunk 1); rank 1 in step 0 (line 10 of send_before_receive.py)"
        " waits for rank 0 in send(to rank 0, chunk 0). What must overlap belongs in one step: yield "
        "send(...), recv(...)",
    ),
    "token_lost": (
        (3, 0),
        "barrier/wrong, world size 3: at the end chunk 0 of rank 0 misses the contribution of rank 1: it "
        "came last to rank 2, in step 0 (line 9 of token_lost.py), which never sends it on; rank 0 receives"
        " chunk 0 last in step 0 (line 9 of token_lost.py), where recv_reduce(from rank 2, chunk 0) brings "
        "the data of ranks 0, 2",
    ),
    "too_few_chunks": (
        (2, 0),
        "scatter/wrong, world size 2, root 0: it cuts the buffer into 1 chunk; scatter needs a multiple of "
        "2, as each rank has a part of its own (line 6 of too_few_chunks.py)",
    ),
    "uneven_sizes": (
        (2, 0),
        "all_gather/wrong, world size 2, rank 0, step 0 (line 9 of uneven_sizes.py): send(to rank 1, chunk "
        "0..1), message 0 of rank 0 to rank 1, meets in its step 0 (line 9 of uneven_sizes.py) recv(from "
        "rank 0, chunk 0): they disagree on how many chunks travel",
    ),
    "unmatched_receive": (
        (2, 0),
        "reduce/wrong, world size 2, root 0, rank 0, step 0 (line 10 of unmatched_receive.py): "
        "recv_reduce(from rank 1, chunk 0) meets nothing: rank 1 sends no message to rank 0, which receives"
        " 1 from it",
    ),
    "written_twice": (
        (2, 0),
        "all_reduce/wrong, world size 2, rank 0, step 0 (line 11 of written_twice.py): recv_reduce(from "
        "rank 1, chunk 0): chunk 0 is written twice in one step",
    ),
    "wrong_place": (
        (3, 0),
        "all_to_all/wrong, world size 3: at the end chunk 1 of rank 0 holds chunk 0 of rank 2; it should "
        "hold chunk 0 of rank 1; it came in step 0 (line 11 of wrong_place.py), by recv(from rank 2, chunk "
        "1)",
    ),
    "wrong_root": (
        (2, 1),
        "broadcast/wrong, world size 2, root 1, rank 0, step 0 (line 11 of wrong_root.py): send(to rank 1, "
        "chunk 0): chunk 0 holds nothing yet (only the root, rank 1, starts with data)",
    ),
}


def test_every_broken_program_is_here() -> None:
    assert {path.stem for path in GALLERY.glob("*.py")} == CAUGHT.keys()


@pytest.mark.parametrize("name", CAUGHT)
def test_the_shortest_counter_example_is_told(name: str) -> None:
    (found,) = load_file(GALLERY / f"{name}.py")
    verdict = prove(found, parse_world_sizes("1-33"))
    example, message = CAUGHT[name]
    assert verdict.counter_example is not None
    assert (verdict.counter_example["world_size"], verdict.counter_example["root"]) == example
    assert verdict.problem == message
    assert all(report.world_size < example[0] for report in verdict.reports)


@pytest.mark.parametrize("name", CAUGHT)
def test_what_is_smaller_is_right(name: str) -> None:
    (found,) = load_file(GALLERY / f"{name}.py")
    (world_size, _), _ = CAUGHT[name]
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
