"""Check the examples: the toy, and the student's skeleton, whose docstrings lead to correct answers."""

import runpy
from pathlib import Path

import pytest

from collectives import ProgramError, verify
from collectives.catalogue import load_file

EXAMPLES = Path(__file__).parents[2] / "examples"
SKELETON = EXAMPLES / "student.py"

ANSWERS = {
    "broadcast": """
    if rank == root:
        for peer in range(world_size):
            if peer != root:
                yield send(peer, 0)
    else:
        yield recv(root, 0)
""",
    "reduce": """
    if rank == root:
        for peer in range(world_size):
            if peer != root:
                yield recv_reduce(peer, 0)
    else:
        yield send(root, 0)
""",
    "all_reduce": """
    yield from reduce(rank, world_size, 0)
    yield from broadcast(rank, world_size, 0)
""",
    "ring_all_reduce": """
    left, right = (rank - 1) % world_size, (rank + 1) % world_size
    for step in range(world_size - 1):
        yield send(right, (rank - step) % world_size), recv_reduce(left, (rank - 1 - step) % world_size)
    for step in range(world_size - 1):
        yield send(right, (rank + 1 - step) % world_size), recv(left, (rank - step) % world_size)
""",
}


def test_toy_example_gives_real_and_simulated_ranks_equal_values(capfd: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(EXAMPLES / "toy.py"), run_name="__main__")
    expected = [f"{kind} rank {rank}: 1.4" for kind in ("real", "simulated") for rank in (0, 1)]
    assert capfd.readouterr().out.splitlines() == expected


def test_empty_skeleton_fails_because_no_rank_yields_a_step() -> None:
    for empty in load_file(SKELETON):
        assert verify(empty, 1).steps == 0
        with pytest.raises(ProgramError, match=r"world size 2.*: at the end chunk 0 .*; no rank yields a step"):
            verify(empty, 2)


def test_completed_skeleton_is_correct_with_the_expected_costs(tmp_path: Path) -> None:
    heads = SKELETON.read_text().split("    yield from ()\n")
    parts = zip(heads, [*ANSWERS.values(), ""], strict=True)
    (tmp_path / "student.py").write_text("".join(head + body for head, body in parts))
    done = {algorithm.function.__name__: algorithm for algorithm in load_file(tmp_path / "student.py")}
    for algorithm in done.values():
        for world_size in range(1, 10):
            for root in range(world_size if algorithm.spec.rooted else 1):
                verify(algorithm, world_size, root)
    for p in range(2, 10):
        assert verify(done["all_reduce"], p).steps == 2 * (p - 1)
        assert verify(done["ring_all_reduce"], p).sent_share == 2 * (p - 1) / p
