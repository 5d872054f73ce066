"""Collectives under way: the rank computes meanwhile, asks for more, and finds exact results when it has waited."""

import real_async

from realcomm.launching.launcher import launch


def test_a_collective_goes_on_while_the_rank_computes():
    (early, computed, right), *others = launch(real_async.computing, 3, timeout=60)
    assert not early
    assert computed > 10  # in the 0.3 s that the others stay away it computes, rather than wait
    assert right and all(other[2] for other in others)


def test_many_in_flight_are_exact_whoever_waits_for_which_first():
    assert launch(real_async.many_in_flight, 3, timeout=60) == [[]] * 3


def test_groups_of_the_same_ranks_do_not_wait_for_each_other():
    assert launch(real_async.two_groups_crosswise, 3, timeout=60) == [[3.0, 6.0]] * 3


def test_fifty_groups_at_a_time_are_exact_and_leave_nothing_when_destroyed():
    assert launch(real_async.fifty_groups, 3, timeout=120) == [([], 50, 0, 0)] * 3


def test_a_wait_may_end_early_and_says_what_the_collective_waits_for():
    (early, wrong, value), others = launch(real_async.waiting, 2, timeout=60)
    assert early.startswith("TimeoutError: the collective is not done after 0:00:00.2")
    assert "all_reduce/ring step 0, waiting for rank 1" in early
    assert wrong == "TypeError: timeout is 0.2; it must be a datetime.timedelta"
    assert [value] == others == ["3.0"]


def test_a_collective_that_fails_tells_everyone_who_waits():
    told, others = launch(real_async.broken, 2, timeout=60)
    assert len(told) == 3 and all("imed out" in said for said in told) and others == []


def test_gradients_set_off_during_backward_train_the_same_model():
    for own, by_hook, under_way in launch(real_async.training, 2, timeout=60):
        assert own and by_hook
        assert under_way == 6  # each of three layers' weight and bias
