"""Compare closed forms with the reference engine and with proofs, and check the lower bounds."""

from math import lcm

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import simcomm
from collectives import Algorithm, Transport, find_algorithm, library, verify
from collectives.costs.bounds import bus_factor, least_sent_share, least_steps
from collectives.costs.closed_forms import FORMS, UPPER_BOUNDS, CostModel, closed_form, least_seconds

MORE_SIZES = [pytest.param(p, marks=[pytest.mark.slow] * (p == 7 or p > 8)) for p in range(1, 18)]
TRANSPORT = Transport("test", overhead=3e-6, goodput=0.9, gamma=1e-10)


def simulated(algorithm: Algorithm, p: int, nbytes: int, latency_us: int) -> float:
    return simcomm.run(algorithm, simcomm.star(p, "10 Gbit/s", f"{latency_us} us", TRANSPORT), nbytes).elapsed


def model_of(p: int, nbytes: int, latency_us: int) -> CostModel:
    return CostModel(p, nbytes, 3e-6 + 2 * latency_us * 1e-6, 1 / (1.25e9 * 0.9), 1e-10)


def formula(algorithm: Algorithm, p: int, nbytes: int, latency_us: int) -> float:
    result = closed_form(algorithm, model_of(p, nbytes, latency_us))
    assert result is not None
    return result


def divisible(algorithm: Algorithm, p: int) -> int:
    """Return a number of bytes that divides into whole chunks of whole elements."""
    return 4 * lcm(algorithm.chunks(p), p)


def check_exact(algorithm: Algorithm, p: int, *calls: tuple[int, int]) -> None:
    """Compare the closed form with the simulation for (multiple of the divisible size, latency in us)."""
    for times, latency in calls:
        nbytes = divisible(algorithm, p) * times
        expected = pytest.approx(simulated(algorithm, p, nbytes, latency), rel=1e-9)
        assert formula(algorithm, p, nbytes, latency) == expected


def test_every_library_algorithm_has_a_closed_form() -> None:
    assert FORMS.keys() == library().keys()
    assert FORMS.keys() >= UPPER_BOUNDS


@pytest.mark.parametrize("name", sorted(FORMS.keys() - UPPER_BOUNDS))
@pytest.mark.parametrize("p", MORE_SIZES)
def test_closed_forms_equal_the_simulation(name: str, p: int) -> None:
    check_exact(find_algorithm(name), p, (1, 40), (2000, 0))


@given(
    st.sampled_from(sorted(FORMS.keys() - UPPER_BOUNDS)), st.integers(1, 24), st.integers(1, 3000), st.integers(0, 100)
)
@settings(max_examples=60, deadline=None)
def test_closed_forms_hold_for_any_size_and_latency(name: str, p: int, times: int, latency: int) -> None:
    check_exact(find_algorithm(name), p, (times, latency))


@pytest.mark.parametrize("name", sorted(UPPER_BOUNDS))
@pytest.mark.parametrize("p", MORE_SIZES)
def test_upper_bounds_of_times_hold_and_are_close(name: str, p: int) -> None:
    algorithm = find_algorithm(name)
    for times, latency in ((1, 40), (2000, 0)):
        nbytes = divisible(algorithm, p) * times
        ratio = (formula(algorithm, p, nbytes, latency) or 1) / (simulated(algorithm, p, nbytes, latency) or 1)
        assert 1 - 1e-9 <= ratio < 1.5


@pytest.mark.parametrize("name", sorted(UPPER_BOUNDS))
@pytest.mark.parametrize("slices", [1, 8, *(pytest.param(slices, marks=pytest.mark.slow) for slices in (2, 32))])
def test_lower_bounds_of_tree_algorithms_hold_and_are_close(name: str, slices: int) -> None:
    algorithm = find_algorithm(name).with_parameters(slices=slices)
    for p in (*range(1, 10), 16, 17):
        for times, latency in ((1, 40), (50, 5), (2000, 0)):
            nbytes = divisible(algorithm, p) * times
            least, seconds = (
                least_seconds(algorithm, model_of(p, nbytes, latency)),
                simulated(algorithm, p, nbytes, latency),
            )
            assert 0.45 * seconds <= least <= seconds * (1 + 1e-9) or p == 1


TORI = [(6, 1, 6), (6, 2, 3), (8, 4, 2), (9, 3, 3), (16, 2, 8), (8, 2, 2), (24, 4, 3), (27, 3, 3)]


@pytest.mark.parametrize(("p", "columns", "rows"), TORI)
def test_torus_closed_form_is_exact_for_several_shapes(p: int, columns: int, rows: int) -> None:
    algorithm = find_algorithm("all_reduce/torus").with_parameters(columns=columns, rows=rows)
    check_exact(algorithm, p, (1, 40), (50, 5), (2000, 0))


@pytest.mark.parametrize(
    ("name", "p", "parameters"),
    [
        ("broadcast/chain", 6, {"slices": 3}),
        ("all_reduce/chain", 5, {"slices": 20}),
        ("all_reduce/hierarchical", 12, {"gpus": 4}),
        ("all_reduce/hierarchical", 12, {"gpus": 2, "rail": "recursive_doubling"}),
        ("all_reduce/hierarchical", 16, {"node": "recursive_halving", "gather": "bruck", "rail": "chain[slices=3]"}),
    ],
)
def test_closed_forms_are_exact_for_several_parameters(name: str, p: int, parameters: dict[str, int | str]) -> None:
    check_exact(find_algorithm(name).with_parameters(**parameters), p, (100, 5))


FEW, MANY = (*range(1, 10), 12, 16, 17, 33), (10, 11, 13, 14, 15, *range(18, 33), 48, 63, 64, 65)


@pytest.mark.parametrize("name", sorted(library()))
@pytest.mark.parametrize("sizes", [FEW, pytest.param(MANY, marks=pytest.mark.slow)], ids=["few", "many"])
def test_verified_costs_match_closed_forms_and_lower_bounds(name: str, sizes: tuple[int, ...]) -> None:
    algorithm = find_algorithm(name)
    for p in sizes:
        report = verify(algorithm, p)
        assert report.steps >= least_steps(p, max(1, report.ports)), p
        assert report.sent_share >= least_sent_share(algorithm.spec.name, p), p
        stated = closed_form(algorithm, CostModel(p, nbytes=0.0, alpha=1.0, beta=0.0, gamma=0.0))
        assert stated is not None
        assert report.steps <= stated if name in UPPER_BOUNDS else report.steps == stated, p


def test_bus_factors_equal_nccl_tests() -> None:
    assert [bus_factor("all_reduce", p) for p in (2, 4, 8)] == [1.0, 1.5, 1.75]
    assert {bus_factor(name, p) for name in ("broadcast", "reduce") for p in (2, 4, 8)} == {1.0}
    others = ("scatter", "gather", "all_gather", "reduce_scatter", "all_to_all")
    assert {bus_factor(name, 4) for name in others} == {0.75}
