"""Parts of a buffer: what a spec leaves where, counted rank by rank and for all ranks at once."""

import pytest

from collectives.request import part_slice, reduced_counts, reduced_slice
from collectives.spec import SPECS, Spec

CASES = [(world_size, root) for world_size in range(1, 8) for root in range(world_size)]


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_a_rank_ends_with_all_parts_its_own_or_none(spec: Spec) -> None:
    for world_size, root in CASES:
        for rank in range(world_size):
            defined = [part for part in range(world_size) if spec.end(rank, part, world_size, root) is not None]
            assert list(spec.result(rank, world_size, root)) == defined


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
@pytest.mark.parametrize("n", [0, 1, 5, 12, 1 << 40])
def test_counts_of_all_ranks_are_those_of_each(spec: Spec, n: int) -> None:
    for world_size, root in CASES:
        slices = [reduced_slice(spec, rank, world_size, root, n) for rank in range(world_size)]
        assert reduced_counts(spec, world_size, root, n).tolist() == [one.stop - one.start for one in slices]
        assert spec.reduces or not any(one.stop - one.start for one in slices)


@pytest.mark.parametrize("n", [0, 3, 12, 13])
def test_parts_cover_the_buffer_once(n: int) -> None:
    parts = [range(n)[part_slice(part, n, 4)] for part in range(4)]
    assert [element for part in parts for element in part] == [*range(n)]
    assert part_slice(range(1, 4), n, 4) == slice(parts[1].start, n)
