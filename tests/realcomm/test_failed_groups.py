"""Failed collectives: what their groups reject, what other ranks get, and which errors leave a group unchanged."""

from typing import Any

import pytest
import real_failures
import real_programs
from real_functions import FUNCTIONS

from realcomm.launching.launcher import launch

REFUSED = "DistBackendError: barrier/{}: the group rejects collectives because its collective 0, "
REASON = " failed with OSError: on purpose; destroy the group and create a new one"


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_group_rejects_collectives_after_a_failure(after: bool):
    for others, failing, _ in zip(*launch(fail_both_ways, 3, after, timeout=120), strict=True):
        assert [*failing] == FUNCTIONS
        for name, (outcome, *later) in failing.items():
            assert outcome == "OSError: on purpose", name
            for messages, barrier in zip(later, ("dissemination", "naive"), strict=True):
                assert messages.startswith(REFUSED.format(barrier)) and messages.endswith(REASON), (name, messages)
        for name, messages in others.items():
            assert messages == ["done"] or all("Error: " in message for message in messages), (name, messages)
        if not after:
            assert all(others[name] != ["done"] for name in ("all_reduce", "barrier", "all_to_all_single", "gather"))


def fail_both_ways(rank: int, world_size: int, after: bool) -> list[dict[str, list[str]]]:
    return [real_failures.all_functions_fail(rank, world_size, after, async_op) for async_op in (False, True)]


@pytest.fixture(scope="module")
def failed() -> dict[str, list[Any]]:
    return real_programs.by_worker(launch(real_programs.several, 2, real_failures.ON_TWO_RANKS, timeout=60))


def test_collectives_queued_after_a_failure_are_rejected(failed: dict[str, list[Any]]):
    (first, *later), _ = failed["queued_behind_a_failure"]
    assert first == "MemoryError: on purpose"
    assert len(later) == 3
    assert all("its collective 0, all_reduce/ring, failed with MemoryError" in outcome for outcome in later)


def test_group_rejects_collectives_after_an_interrupt(failed: dict[str, list[Any]]):
    for behind_another, next_one, at_work, next_then in failed["interrupted"]:
        assert behind_another.startswith("KeyboardInterrupt")
        assert "its collective 1, barrier/dissemination, failed with KeyboardInterrupt" in next_one
        assert at_work.startswith("KeyboardInterrupt") or "rejects" in at_work
        assert "failed with KeyboardInterrupt" in next_then


def test_ranks_in_different_collectives_raise_errors(failed: dict[str, list[Any]]):
    for outcomes in failed["numbers_apart"]:
        assert len(outcomes) == 4
        assert all(outcome.startswith("RuntimeError: ") for outcome in outcomes), outcomes


def test_new_group_of_the_same_ranks_works_after_a_failure(failed: dict[str, list[Any]]):
    for (failure, refused, in_another), total in failed["a_new_group_after_a_failure"]:
        assert failure == "OSError: on purpose"
        assert "rejects collectives" in refused
        assert in_another == "done"
        assert total == 3.0
