"""Check operations, steps, and the bounds of chunks and parts."""

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectives import InputError, recv, send
from collectives.call import part_slice, reduced_counts, reduced_slice
from collectives.spec import SPECS, Spec
from collectives.step import as_step, extent, offset

lengths, cuts = st.integers(0, 10_000), st.integers(1, 64)


@given(lengths, cuts)
def test_chunks_cover_the_buffer_in_order(n: int, chunks: int) -> None:
    edges = [offset(k, n, chunks) for k in range(chunks + 1)]
    assert edges[0] == 0
    assert edges[-1] == n
    assert edges == sorted(edges)
    assert (
        max(extent(k, 1, n, chunks) for k in range(chunks)) - min(extent(k, 1, n, chunks) for k in range(chunks)) <= 1
    )


@pytest.mark.parametrize("yielded", [None, 3, "send", (send(1, 0), None), [(send(1, 0), recv(1, 0))], iter(())])
def test_step_rejects_a_value_that_is_not_an_operation(yielded: object) -> None:
    hint = "; to run another program, write `yield from program`" if isinstance(yielded, Iterator) else ""
    with pytest.raises(InputError, match=f"is not an operation; yield send, recv, recv_reduce, copy or reduce{hint}$"):
        as_step(yielded)


CASES = [(world_size, root) for world_size in range(1, 8) for root in range(world_size)]


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
@pytest.mark.parametrize("n", [0, 1, 5, 12, 1 << 40])
def test_collective_spec_lists_the_defined_shards_of_each_rank(spec: Spec, n: int) -> None:
    for world_size, root in CASES:
        for rank in range(world_size):
            defined = [part for part in range(world_size) if spec.end(rank, part, world_size, root) is not None]
            assert list(spec.result(rank, world_size, root)) == defined
        slices = [reduced_slice(spec, rank, world_size, root, n) for rank in range(world_size)]
        assert reduced_counts(spec, world_size, root, n).tolist() == [part.stop - part.start for part in slices]
        assert spec.reduces or not any(part.stop - part.start for part in slices)


@pytest.mark.parametrize("n", [0, 3, 12, 13])
def test_shard_slices_cover_every_element_once(n: int) -> None:
    parts = [range(n)[part_slice(part, n, 4)] for part in range(4)]
    assert [element for part in parts for element in part] == [*range(n)]
    assert part_slice(range(1, 4), n, 4) == slice(parts[1].start, n)
