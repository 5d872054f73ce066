"""Every algorithm on real processes matches torch's own collectives, and sends the messages of its schedule.

A sample runs by default. All world sizes, lengths, roots and dtypes, and more random cases, are slow.
"""

from random import Random

import pytest
import real_cases
import torch
from real_cases import TYPED_OPS, Case

from collectives.catalogue import library
from realcomm.launching.launcher import launch

AT_ONCE = 250  # random cases for one start of the processes
LARGER = [pytest.param(seed, 17, 20_000, marks=pytest.mark.slow) for seed in range(12)]
SLOWER = [(world_size, True) for world_size in range(1, 18)]
# ranks, and whether all lengths, roots and types are tried on them
WORLDS = [(5, False), *(pytest.param(*world, marks=pytest.mark.slow) for world in SLOWER)]


@pytest.mark.parametrize(("world_size", "all_lengths"), WORLDS)
def test_every_algorithm_gives_the_result_of_torch(world_size: int, all_lengths: bool):
    cases = len([*real_cases.cases(world_size, all_lengths)])
    assert cases >= 3 * len(library())
    assert launch(real_cases.compare_with_torch, world_size, all_lengths, timeout=300) == [(cases, [])] * world_size


def random_case(draw: Random, world_size: int, longest: int) -> Case:
    algorithm = draw.choice([*library().values()])
    dtype, op = draw.choice([(torch.float32, "sum"), *(TYPED_OPS if algorithm.spec.reduces else ())])
    root = draw.randrange(world_size) * algorithm.spec.rooted
    return Case(algorithm, draw.randint(0, longest), dtype, op, root, draw.choice(real_cases.SLICES))


@pytest.mark.parametrize(("seed", "largest", "longest"), [(None, 5, 300), *LARGER])
def test_random_algorithms_and_sizes_give_the_results_of_torch(seed: int | None, largest: int, longest: int):
    draw = Random(seed)
    world_size = draw.randint(2, largest)
    cases = [random_case(draw, world_size, longest) for _ in range(AT_ONCE)]
    assert launch(real_cases.compare_with_torch, world_size, cases, timeout=300) == [(AT_ONCE, [])] * world_size
