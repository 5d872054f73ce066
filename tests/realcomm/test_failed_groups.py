"""Failed collectives: what their groups reject, what other ranks get, and which errors leave a group unchanged."""

import pytest
import real_failures
from real_failures import AFTER, BEFORE, MIDDLE
from real_functions import FUNCTIONS

from realcomm.launching.launcher import launch

REFUSED = "DistBackendError: barrier/{}: the group rejects collectives because its collective 0, "
REASON = " failed with OSError: on purpose; destroy the group and create a new one"


@pytest.mark.parametrize("async_op", [False, True])
@pytest.mark.parametrize("after", [BEFORE, pytest.param(MIDDLE, marks=pytest.mark.slow), AFTER])
def test_group_rejects_collectives_after_a_failure(after: int, async_op: bool):
    others, failing, _ = launch(real_failures.all_functions_fail, 3, after, async_op, timeout=120)
    assert [*failing] == FUNCTIONS
    for name, (told, *later) in failing.items():
        assert told == "OSError: on purpose", name
        for said, barrier in zip(later, ("dissemination", "naive"), strict=True):
            assert said.startswith(REFUSED.format(barrier)) and said.endswith(REASON), (name, said)
    for name, said in others.items():
        assert said == ["done"] or all("Error: " in one for one in said), (name, said)
    if after == BEFORE:
        assert all(others[name] != ["done"] for name in ("all_reduce", "barrier", "all_to_all_single", "gather"))


def test_collectives_after_a_failed_one_are_rejected():
    (first, *later), _ = launch(real_failures.queued_behind_a_failure, 2, timeout=60)
    assert first == "MemoryError: on purpose"
    assert len(later) == 3
    assert all("its collective 0, all_reduce/ring, failed with MemoryError" in said for said in later)


def test_interrupt_is_a_failure():
    for behind_another, next_one, at_work, next_then in launch(real_failures.interrupted, 2, timeout=60):
        assert behind_another.startswith("KeyboardInterrupt")
        assert "its collective 1, barrier/dissemination, failed with KeyboardInterrupt" in next_one
        assert at_work.startswith("KeyboardInterrupt") or "refuses" in at_work
        assert "failed with KeyboardInterrupt" in next_then


def test_ranks_in_different_collectives_get_no_data():
    for said in launch(real_failures.numbers_apart, 2, timeout=60):
        assert len(said) == 4
        assert all(one.startswith("RuntimeError: ") for one in said), said


def test_wrong_arguments_leave_the_group_as_it_was():
    refused, total = ["InputError"] * 3, 3.0
    first, second = launch(real_failures.wrong_arguments, 2, timeout=60)
    assert first == [*refused, str(total)] * 2
    assert second == [str(total), *refused, str(total)]


def test_new_group_of_the_same_ranks_works_after_a_failure():
    for (failed, refused, in_another), total in launch(real_failures.a_new_group_after_a_failure, 2, timeout=60):
        assert failed == "OSError: on purpose"
        assert "rejects collectives" in refused
        assert in_another == "done"
        assert total == 3.0


def test_timeout_is_a_failure():
    _, (late, refused) = launch(real_failures.a_lost_peer, 2, timeout=60)
    assert "Timed out" in late
    assert "collective 0, barrier/dissemination, failed with RuntimeError" in refused
    assert "Timed out" in refused
