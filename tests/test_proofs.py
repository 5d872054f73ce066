"""What `ringlab check` finds out about algorithms."""

from pathlib import Path
from unittest.mock import Mock

import pytest

from collectives import find_algorithm, library, verify
from collectives.verdict import EVERY_ROOT_UP_TO, prove, roots_to_try
from ringlab.commands.check import check, find_algorithms


def test_an_algorithm_that_does_not_exist_for_some_sizes_is_proved_for_the_others() -> None:
    found = find_algorithm("all_reduce/hierarchical").with_parameters(gpus=4)
    verdict = prove(found, range(1, 14))
    assert verdict.problem is None
    assert [report.world_size for report in verdict.reports] == [4, 8, 12]
    assert verdict.to_dict()["undefined"] == [1, 2, 3, 5, 6, 7, 9, 10, 11, 13]
    assert verdict.undefined[5].endswith("world size 5: gpus=4 is for multiples of 4 ranks")


def test_an_algorithm_that_exists_for_none_is_not_called_right() -> None:
    verdict = prove(find_algorithm("all_reduce/torus").with_parameters(columns=5), [4])
    assert verdict.problem is not None and verdict.problem.endswith("columns=5 is for multiples of 5 ranks")


def test_all_roots_of_few_ranks_and_some_of_many() -> None:
    broadcast = find_algorithm("broadcast/binomial")
    assert roots_to_try(broadcast, EVERY_ROOT_UP_TO) == list(range(EVERY_ROOT_UP_TO))
    assert roots_to_try(broadcast, 33) == [0, 1, 16, 32]
    assert roots_to_try(find_algorithm("all_reduce/ring"), 33) == [0]


def test_the_whole_library_has_a_name() -> None:
    assert [found.full_name for found in find_algorithms("library")] == list(library())


def test_a_barrier_wastes_nothing_as_its_bytes_mean_nothing() -> None:
    assert prove(find_algorithm("barrier/naive"), range(1, 9)).wasteful_from is None
    assert prove(find_algorithm("all_reduce/naive"), range(1, 9)).wasteful_from == 4


def test_the_cost_is_also_told_as_a_multiple_of_the_least() -> None:
    alone, *_, eight = prove(find_algorithm("all_reduce/naive"), [1, 8]).to_dict()["world_sizes"]
    assert (alone["steps_ratio"], alone["sent_ratio"]) == (None, None)
    assert (eight["steps_ratio"], eight["sent_ratio"]) == (14 / 3, 4.0)


def test_the_page_about_algorithms_has_them_all() -> None:
    page = Path(__file__).parent.parent.joinpath("docs", "algorithms.md").read_text(encoding="utf-8")
    assert all(f"`{name}`" in page for name in library())


def test_a_world_size_that_is_given_twice_is_proved_once(monkeypatch: pytest.MonkeyPatch):
    proved = Mock(side_effect=verify)
    monkeypatch.setattr("collectives.verdict.verify", proved)
    assert len(check("all_reduce/ring", [3, 2, 3]).verdicts[0].reports) == 2
    assert [call.args[1] for call in proved.call_args_list] == [2, 3]
