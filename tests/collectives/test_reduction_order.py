"""Find ranks that reduce in different orders: by proof, by bits of floats, and in the commands."""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from command_line import Ringlab
from declared_programs import declared
from hypothesis import given, settings
from hypothesis import strategies as st

import simcomm
from collectives import Algorithm, copy, library, recv, reduce, send
from collectives.call import part_slice
from collectives.proof.verifier import is_bitwise_identical
from collectives.step import Program

# mypy: allow-untyped-defs

PER_RANK = 120  # floats of each part, so that equal sums by chance are impossible
SHARED = [name for name in library() if name.startswith(("all_reduce/", "reduce_scatter/", "all_gather/"))]
MORE = [pytest.param(p, marks=pytest.mark.slow) for p in [*range(8, 12), *range(13, 18), 24, 32]]


def has_equal_bits(algorithm: Algorithm, p: int, seed: int = 0) -> bool:
    """Return whether all ranks end with equal bits in the shared parts, for random floats."""
    floats = np.random.default_rng(seed)
    n = PER_RANK * p
    buffers = [(floats.normal(size=n) * 2.0 ** floats.integers(-8, 8, n)).astype(np.float32) for _ in range(p)]
    simcomm.run(algorithm, simcomm.star(p, "10 Gbit/s", "1 us"), buffers=buffers)
    results: dict[int, set[bytes]] = {}
    for rank, buffer in enumerate(buffers):
        for part in algorithm.spec.result(rank, p, 0):
            results.setdefault(part, set()).add(buffer[part_slice(part, n, p)].tobytes())
    return all(len(bits) == 1 for bits in results.values())


@pytest.mark.parametrize("p", [1, 2, 3, 4, 5, 6, 7, 12, *MORE])
@pytest.mark.parametrize("name", SHARED)
def test_bitwise_identity_proof_of_library_matches_execution(name: str, p: int) -> None:
    assert has_equal_bits(library()[name], p) == is_bitwise_identical(library()[name], p)


def summed_in(sums: list[list[tuple[int, int]]]) -> Algorithm:
    """Return an all_reduce in which each rank collects all buffers in scratch, then adds them in its own order."""
    p = len(sums)

    def program(rank: int, world_size: int) -> Program:
        others = [other for other in range(p) if other != rank]
        yield (copy(0, 1 + rank), *(send(other, 0) for other in others), *(recv(other, 1 + other) for other in others))
        into = 0
        for source, into in sums[rank]:
            yield reduce(1 + source, 1 + into)
        yield copy(1 + into, 0)

    return declared("all_reduce", program, name="sums", chunks=1, scratch=p)


@st.composite
def summing_orders(draw: st.DrawFn) -> list[list[tuple[int, int]]]:
    """Draw one of two orders of sums for each rank, so that equal orders are frequent."""
    p = draw(st.integers(2, 5))

    def order() -> Iterator[tuple[int, int]]:
        alive = list(range(p))
        while len(alive) > 1:
            source, into = draw(st.permutations(alive))[:2]
            alive.remove(source)
            yield source, into

    orders = [list(order()) for _ in range(2)]
    return [orders[draw(st.integers(0, 1))] for _ in range(p)]


@settings(deadline=None, max_examples=60)
@given(summing_orders(), st.integers(0, 2**32))
def test_bitwise_identity_proof_of_random_sums_matches_execution(sums: list[list[tuple[int, int]]], seed: int) -> None:
    algorithm = summed_in(sums)
    assert has_equal_bits(algorithm, len(sums), seed) == is_bitwise_identical(algorithm, len(sums))


def test_check_warns_if_ranks_reduce_in_different_orders(ringlab: Ringlab, tmp_path: Path) -> None:
    done = ringlab("check", "all_reduce/unchunked_ring", "--ranks", "1-4", "--json", tmp_path / "check.json")
    (report,) = json.loads((tmp_path / "check.json").read_text())["algorithms"]
    assert (done.status, report["correct"]) == (0, True)
    assert [size["bitwise_identical"] for size in report["world_sizes"]] == [True, True, False, False]
    assert "RIGHT  all_reduce/unchunked_ring" in done.out
    assert "WARNING  all_reduce/unchunked_ring: with 3, 4 ranks, the ranks reduce in different orders." in done.out
    assert "WARNING" not in ringlab("check", "all_reduce/ring", "--ranks", "1-4").out


def test_list_marks_algorithms_whose_floats_differ_by_rank(ringlab: Ringlab) -> None:
    names = json.loads(ringlab("list", "algorithms", "--json", "-").out)["algorithms"]
    differing = [name["name"] for name in names if "floats differ between ranks" in name["about"]]
    assert differing == ["all_reduce/unchunked_ring"]
