"""Run every algorithm on data in the simulator and compare the results with numpy."""

import numpy as np
import oracle_data as oracle
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import simcomm
from collectives import Algorithm, InputError, find_algorithm, library

SLOW_SIZES = (7, *range(9, 18))
SIZES = [pytest.param(p, marks=[pytest.mark.slow] * (p in SLOW_SIZES)) for p in range(1, 18)]


def differences(algorithm: Algorithm, p: int, n: int, op: str = "sum", root: int = 0) -> list[str]:
    data = oracle.inputs(p, n)
    arrays = [array.copy() for array in data]
    options = {"op": op if algorithm.spec.reduces else None, "root": root if algorithm.spec.rooted else None}
    simcomm.run(algorithm, simcomm.star(p, "1 GB/s", "1 us"), **options, buffers=arrays)
    return [
        f"{algorithm.full_name}, p={p}, n={n}, {op}, root={root}: rank {rank} holds {arrays[rank][where]}, not {wanted}"
        for rank in range(p)
        for where, wanted in oracle.expected(algorithm.spec.name, op, data, root, rank)
        if not np.array_equal(arrays[rank][where], wanted)
    ]


@pytest.mark.parametrize("p", SIZES)
@pytest.mark.parametrize("name", library())
def test_collective_is_correct_for_different_lengths(name: str, p: int) -> None:
    algorithm = find_algorithm(name)
    lengths = oracle.lengths(algorithm, p)
    for n in lengths if p < 9 else {lengths[-1], lengths[p % len(lengths)]}:
        assert not differences(algorithm, p, n, op=oracle.ops(algorithm)[0], root=p - 1 if algorithm.spec.rooted else 0)


@pytest.mark.parametrize("p", SIZES)
@pytest.mark.parametrize("name", [name for name in library() if len(oracle.ops(library()[name])) > 1])
def test_every_reduction_operator_is_correct(name: str, p: int) -> None:
    algorithm = find_algorithm(name)
    others = oracle.ops(algorithm)[1:]
    for op in others if p < 9 else [others[p % len(others)]]:
        assert not differences(algorithm, p, p + 1, op, root=p // 2 if algorithm.spec.rooted else 0)


@given(st.sampled_from(sorted(library())), st.integers(1, 20), st.integers(1, 300), st.data())
@settings(max_examples=60, deadline=None)
def test_random_collective_calls_give_correct_results(name: str, p: int, n: int, data: st.DataObject) -> None:
    algorithm = find_algorithm(name)
    n = n * algorithm.chunks(p) if algorithm.spec.moves else n
    root = data.draw(st.integers(0, p - 1)) if algorithm.spec.rooted else 0
    assert not differences(algorithm, p, n, data.draw(st.sampled_from(oracle.ops(algorithm))), root)


@given(st.sampled_from(["chain", "double_tree"]), st.sampled_from(["broadcast", "reduce", "all_reduce"]), st.data())
@settings(max_examples=40, deadline=None)
def test_sliced_collective_is_correct_for_any_number_of_slices(name: str, collective: str, data: st.DataObject) -> None:
    p, n, slices = (data.draw(st.integers(1, most)) for most in (12, 100, 20))
    algorithm = find_algorithm(name, collective).with_parameters(slices=slices)
    root = data.draw(st.integers(0, p - 1)) if algorithm.spec.rooted else 0
    assert not differences(algorithm, p, n, root=root)


TORI = [(1, 1, 1), (6, 2, 3), (6, 3, 1), (7, 7, 1), (8, 1, 2), (12, 4, 3), (24, 4, 3), (27, 3, 3)]


@pytest.mark.parametrize(("p", "columns", "rows"), TORI)
def test_torus_all_reduce_is_correct_for_several_shapes(p: int, columns: int, rows: int) -> None:
    assert not differences(find_algorithm("all_reduce/torus").with_parameters(columns=columns, rows=rows), p, 103)


@pytest.mark.parametrize("name", [name for name in library() if library()[name].spec.moves])
def test_all_to_all_rejects_uneven_buffers_and_rounds_sizes_down(name: str) -> None:
    cluster = simcomm.star(4, "1 GB/s", "1 us")
    with pytest.raises(InputError, match=f"{name}: the number of elements must be a multiple of the 4 chunks, not 10"):
        simcomm.run(name, cluster, buffers=[np.zeros(10) for _ in range(4)])
    assert simcomm.run(name, cluster, nbytes=43).facts["nbytes"] == 32


def test_barrier_rejects_a_size_below_one_element() -> None:
    with pytest.raises(InputError, match="barrier/dissemination: each buffer must have at least one element"):
        simcomm.run("barrier/dissemination", simcomm.star(2, "1 GB/s", "1 us"), nbytes=3)


def test_mean_divides_only_reduced_data() -> None:
    arrays = [np.full(4, 2.0 + rank) for rank in range(2)]
    simcomm.run("reduce_scatter/ring", simcomm.star(2, "1 GB/s", "1 us"), op="mean", buffers=arrays)
    assert arrays[0][:2].tolist() == arrays[1][2:].tolist() == [2.5, 2.5]
    assert arrays[0][2:].tolist() == [2.0, 2.0]
