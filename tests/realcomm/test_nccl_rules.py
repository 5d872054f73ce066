"""With NCCL's rules on gloo: executing and recording never wait for messages that are not posted yet."""

import nccl_on_gloo
import pytest
import real_cases

from collectives.catalogue import library
from realcomm.launching.launcher import launch


@pytest.mark.parametrize("world_size", [3, *(pytest.param(ranks, marks=pytest.mark.slow) for ranks in (2, 4, 5))])
def test_every_algorithm_runs_under_nccl_rules_without_deadlock(world_size: int):
    cases = [*real_cases.cases(world_size, all_lengths=False)]
    assert {case.algorithm.full_name for case in cases} == set(library())
    results = launch(nccl_on_gloo.record_all, world_size, cases, timeout=120)
    assert results == [(len(cases), [])] * world_size
