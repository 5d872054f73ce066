"""Check operations, steps, and the bounds of chunks and parts."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectives import InputError, copy, recv, recv_reduce, reduce, send
from collectives.call import part_slice, reduced_counts, reduced_slice
from collectives.schedule.rules import same_chunks
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


@given(lengths, cuts, st.integers(1, 8))
def test_coarse_and_fine_chunks_share_boundaries(n: int, chunks: int, finer: int) -> None:
    for k in range(chunks + 1):
        assert offset(k, n, chunks) == offset(k * finer, n, chunks * finer)


@given(lengths, cuts)
def test_offset_accepts_an_array(n: int, chunks: int) -> None:
    assert offset(np.arange(3 * chunks), n, chunks).tolist() == [offset(k, n, chunks) for k in range(3 * chunks)]


@given(lengths, cuts, st.integers(0, 200))
def test_scratch_chunks_repeat_buffer_sizes(n: int, chunks: int, index: int) -> None:
    assert extent(index, 1, n, chunks) == extent(index % chunks, 1, n, chunks)
    assert offset(index + chunks, n, chunks) == offset(index, n, chunks) + n


@given(lengths, cuts, st.integers(0, 100), st.integers(0, 5), st.integers(1, 100))
def test_equivalent_chunk_runs_have_equal_size(n: int, chunks: int, one: int, multiple: int, count: int) -> None:
    other = one + multiple * chunks
    assert same_chunks(np.array([one], np.int32), np.array([other], np.int32), chunks).all()
    assert extent(one, count, n, chunks) == extent(other, count, n, chunks)


def test_operations_have_source_and_target() -> None:
    assert (list(send(1, 3, count=2).source), list(send(1, 3, count=2).target)) == ([3, 4], [])
    assert (list(recv(1, 3).source), list(recv(1, 3).target)) == ([], [3])
    assert (list(recv_reduce(1, 3).source), list(recv_reduce(1, 3).target)) == ([], [3])
    assert (list(copy(0, into=5, count=2).source), list(copy(0, into=5, count=2).target)) == ([0, 1], [5, 6])
    assert (list(reduce(0, into=5).source), list(reduce(0, into=5).target)) == ([0], [5])


def test_step_is_a_tuple_list_or_operation() -> None:
    both = send(1, 0), recv(1, 1)
    assert as_step(both) == as_step(list(both)) == both
    assert as_step(both[0]) == (both[0],)
    assert as_step(()) == ()


@pytest.mark.parametrize("yielded", [None, 3, "send", (send(1, 0), None), [(send(1, 0), recv(1, 0))]])
def test_value_that_is_not_an_operation_is_rejected(yielded: object) -> None:
    with pytest.raises(InputError, match="is not an operation; yield send, recv, recv_reduce, copy, reduce"):
        as_step(yielded)


def test_program_as_a_step_hints_at_yield_from() -> None:
    with pytest.raises(InputError, match="to run another program, write `yield from program`"):
        as_step(iter([send(1, 0)]))


CASES = [(world_size, root) for world_size in range(1, 8) for root in range(world_size)]


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_spec_result_equals_defined_parts(spec: Spec) -> None:
    for world_size, root in CASES:
        for rank in range(world_size):
            defined = [part for part in range(world_size) if spec.end(rank, part, world_size, root) is not None]
            assert list(spec.result(rank, world_size, root)) == defined


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
@pytest.mark.parametrize("n", [0, 1, 5, 12, 1 << 40])
def test_reduced_counts_match_slice_lengths(spec: Spec, n: int) -> None:
    for world_size, root in CASES:
        slices = [reduced_slice(spec, rank, world_size, root, n) for rank in range(world_size)]
        assert reduced_counts(spec, world_size, root, n).tolist() == [part.stop - part.start for part in slices]
        assert spec.reduces or not any(part.stop - part.start for part in slices)


@pytest.mark.parametrize("n", [0, 3, 12, 13])
def test_part_slices_cover_the_buffer_once(n: int) -> None:
    parts = [range(n)[part_slice(part, n, 4)] for part in range(4)]
    assert [element for part in parts for element in part] == [*range(n)]
    assert part_slice(range(1, 4), n, 4) == slice(parts[1].start, n)
