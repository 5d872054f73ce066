"""The gallery of broken programs: each is caught at its smallest world size and root, with a message to act on."""

from pathlib import Path

import pytest

from collectives.catalogue import load_file
from ringlab.answers.proofs import prove
from ringlab.answers.ranges import parse_world_sizes

GALLERY = Path(__file__).parent / "broken"
CAUGHT = {  # smallest world size and root, and what is said
    "crashes": (
        (2, 0),
        "broadcast/wrong, world size 2, root 0, rank 0, step 0: the program fails with ZeroDivisionError: "
        "integer modulo by zero (line 9 of crashes.py)",
    ),
    "double_count": (
        (3, 0),
        "all_reduce/wrong, world size 3, rank 0, step 1: recv_reduce(from rank 1, chunk 0): the contribution "
        "of rank 0 would be counted twice: chunk 0 already holds ranks 0, 2 and ranks 0, 1 would be added",
    ),
    "empty_scratch": (
        (1, 0),
        "all_reduce/wrong, world size 1, rank 0, step 0: reduce(chunk 0 into 1): chunk 1 holds nothing yet "
        "(scratch is undefined at the start), so nothing can be reduced into it",
    ),
    "off_by_one_chunk": (
        (2, 0),
        "all_reduce/wrong, world size 2, rank 0, step 0: send(to rank 1, chunk 0), message 0 of rank 0 to "
        "rank 1, meets in its step 0 recv_reduce(from rank 0, chunk 1): these are different chunks of the "
        "buffer; data keeps its place",
    ),
    "off_by_one_step": (
        (2, 0),
        "reduce_scatter/wrong, world size 2: at the end chunk 0 of rank 0 misses the contribution of rank 1; "
        "no rank yields a step (`yield` a step, `yield from` another program)",
    ),
    "other_place": (
        (2, 0),
        "all_gather/wrong, world size 2, rank 0, step 0: copy(chunk 0 into 1): these are different chunks of "
        "the buffer; data keeps its place",
    ),
    "overlapping_channels": (
        (2, 0),
        "all_reduce/wrong, world size 2, rank 0, channel 1, step 0: send(to rank 1, chunk 1): chunk 1 "
        "belongs to channel 0, which uses it too; channels of a rank touch different chunks",
    ),
    "send_before_receive": (
        (2, 0),
        "all_reduce/wrong, world size 2: deadlock: rank 0 in step 0 waits for rank 1 in send(to rank 1, "
        "chunk 1); rank 1 in step 0 waits for rank 0 in send(to rank 0, chunk 0). What must overlap belongs "
        "in one step: yield send(...), recv(...)",
    ),
    "token_lost": (
        (3, 0),
        "barrier/wrong, world size 3: at the end chunk 0 of rank 0 misses the contribution of rank 1",
    ),
    "too_few_chunks": (
        (2, 0),
        "scatter/wrong, world size 2, root 0: it cuts the buffer into 1 chunk; scatter needs a multiple of "
        "2, as each rank has a part of its own",
    ),
    "uneven_sizes": (
        (2, 0),
        "all_gather/wrong, world size 2, rank 0, step 0: send(to rank 1, chunk 0..1), message 0 of rank 0 to "
        "rank 1, meets in its step 0 recv(from rank 0, chunk 0): they disagree on how many chunks travel",
    ),
    "unmatched_receive": (
        (2, 0),
        "reduce/wrong, world size 2, root 0, rank 0, step 0: recv_reduce(from rank 1, chunk 0) meets "
        "nothing: rank 1 sends no message to rank 0, which receives 1 from it",
    ),
    "written_twice": (
        (2, 0),
        "all_reduce/wrong, world size 2, rank 0, step 0: recv_reduce(from rank 1, chunk 0): chunk 0 is "
        "written twice in one step",
    ),
    "wrong_place": (
        (3, 0),
        "all_to_all/wrong, world size 3: at the end chunk 1 of rank 0 holds chunk 0 of rank 2; it should "
        "hold chunk 0 of rank 1",
    ),
    "wrong_root": (
        (2, 1),
        "broadcast/wrong, world size 2, root 1, rank 0, step 0: send(to rank 1, chunk 0): chunk 0 holds "
        "nothing yet (only the root, rank 1, starts with data)",
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
    assert prove(found, range(1, world_size)).problem is None
