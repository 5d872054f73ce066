"""The functions on tensors, asynchronous calls and the classroom match torch.distributed's own."""

from inspect import Parameter, signature
from typing import Any

import pytest
import real_async
import real_functions
import real_programs
import torch
import torch.distributed as dist

import realcomm
from collectives.errors import InputError
from realcomm import classroom
from realcomm.launching.launcher import launch


@pytest.fixture(scope="module")
def two() -> dict[str, list[Any]]:
    workers = [real_functions.refusals, real_async.waiting]
    return real_programs.by_worker(launch(real_programs.several, 2, workers, timeout=60))


@pytest.fixture(scope="module")
def three() -> dict[str, list[Any]]:
    workers = [real_async.computing, real_functions.in_class, real_async.many_groups]
    return real_programs.by_worker(launch(real_programs.several, 3, workers, timeout=60))


@pytest.mark.parametrize("name", real_functions.FUNCTIONS)
def test_function_parameters_and_defaults_match_torch(name: str):
    ours = dict(signature(getattr(realcomm, name)).parameters)
    theirs = [*signature(getattr(dist, name)).parameters.values()]
    assert ours.pop("algorithm").kind is Parameter.KEYWORD_ONLY
    theirs = theirs[:2] if name == "barrier" else theirs  # without device_ids and timeout
    defaults = {each.name: "sum" if each.name == "op" else each.default for each in theirs}
    assert {key: parameter.default for key, parameter in ours.items()} == defaults and [*ours] == [*defaults]
    assert {parameter.kind for parameter in ours.values()} == {Parameter.POSITIONAL_OR_KEYWORD}


def test_examples_of_all_functions_pass_on_two_ranks():
    assert len(real_functions.FUNCTIONS) == 12
    for examples, failures in launch(real_functions.run_examples, 2):
        assert failures == ""
        assert examples == 3 * (11 + 4) + 1 + 3 + 4


def test_roots_of_group_collectives_are_world_ranks():
    assert launch(real_functions.in_a_group, 4) == [[0.0, 0.0], [4.0, 3.0], [2.0, 2.0], [4.0, 3.0]]


def test_invalid_arguments_are_rejected_before_anything_is_sent(two: dict[str, list[Any]]):
    assert two["refusals"] == [[], []]


def test_classroom_functions_give_the_expected_results(three: dict[str, list[Any]]):
    for rank, results in enumerate(three["in_class"]):
        assert results == [[2.0] * 5, [2.0] * 5 if rank == 1 else [], [6.0] * 5, [2.0] * 5]


def test_missing_process_group_is_reported():
    with pytest.raises(InputError, match="init_process_group"):
        classroom.broadcast(torch.zeros(1), 0, 1)


def test_collective_continues_while_the_rank_computes(three: dict[str, list[Any]]):
    (early, computed, right), *others = three["computing"]
    assert not early
    assert computed > 10  # in the 0.3 s that the others stay away it computes, rather than wait
    assert right and all(other[2] for other in others)


def test_hundreds_of_groups_give_exact_results_without_leaks(three: dict[str, list[Any]]):
    assert three["many_groups"] == [([], real_async.GROUPS, 0, 0)] * 3


def test_wait_timeout_names_the_awaited_peer(two: dict[str, list[Any]]):
    (early, wrong, value), others = two["waiting"]
    assert early.startswith("TimeoutError: the collective is not done after 0:00:00.2")
    assert "all_reduce/ring step 0, waiting for rank 1" in early
    assert wrong == "TypeError: timeout must be a datetime.timedelta, not 0.2"
    assert [value] == others == ["3.0"]
