"""Every algorithm on real processes matches torch's own collectives, and sends the messages of its schedule.

A sample runs by default. All world sizes, lengths, roots and dtypes, and more random cases, are slow.
"""

import pytest
import real_cases
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from real_cases import TYPED_OPS, Case

from collectives.catalogue import library
from collectives.declaration import Algorithm
from realcomm.launching.launcher import launch

AT_ONCE = 250  # random cases for one start of the processes
SLOWER = [(world_size, True) for world_size in range(1, 18)]
# ranks, and whether all lengths, roots and types are tried on them
WORLDS = [(5, False), *(pytest.param(*world, marks=pytest.mark.slow) for world in SLOWER)]


@pytest.mark.parametrize(("world_size", "all_lengths"), WORLDS)
def test_every_algorithm_matches_torch_and_its_schedule(world_size: int, all_lengths: bool):
    cases = len([*real_cases.cases(world_size, all_lengths)])
    assert cases >= 3 * len(library())
    assert launch(real_cases.compare_with_torch, world_size, all_lengths, timeout=300) == [(cases, [])] * world_size


def drawn(world_size: int, longest: int) -> st.SearchStrategy[list[Case]]:

    def case(drawn: tuple[Algorithm, int, int, int]) -> Case:
        algorithm, n, kind, root = drawn
        kinds = [(torch.float32, "sum"), *(TYPED_OPS if algorithm.spec.reduces else ())]
        dtype, op = kinds[kind % len(kinds)]
        return Case(algorithm, n, dtype, op, root * algorithm.spec.rooted, real_cases.SLICES[kind % 2])

    numbers = st.integers(0, longest), st.integers(0, 99), st.integers(0, world_size - 1)
    return st.lists(
        st.tuples(st.sampled_from([*library().values()]), *numbers).map(case), min_size=AT_ONCE, max_size=AT_ONCE
    )


def random_cases(data: st.DataObject, largest: int, longest: int) -> None:
    world_size = data.draw(st.integers(2, largest))
    cases = data.draw(drawn(world_size, longest))
    assert launch(real_cases.compare_with_torch, world_size, cases, timeout=300) == [(AT_ONCE, [])] * world_size


def some(examples: int) -> settings:
    """Return settings for a number of examples. Failures are not shrunk, because each attempt starts processes."""
    return settings(
        max_examples=examples, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck)
    )


@given(data=st.data())
@some(1)
def test_random_cases_match_torch(data: st.DataObject):
    random_cases(data, largest=5, longest=1000)


@pytest.mark.slow
@given(data=st.data())
@some(12)
def test_many_more_random_cases_match_torch(data: st.DataObject):
    random_cases(data, largest=17, longest=20_000)
