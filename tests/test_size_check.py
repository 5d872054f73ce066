"""What is too large is refused before it is built, with the size, the limit and a way out."""

import time

import pytest

import simcomm
from collectives import find_algorithm
from collectives.errors import InputError
from collectives.schedule.size_check import estimate_operations


@pytest.mark.parametrize(("algorithm", "hosts"), [("all_to_all/pairwise", 60_000), ("all_to_all/direct", 10_000)])
def test_too_many_hosts_of_all_to_all_are_refused_at_once(algorithm: str, hosts: int):
    cluster = simcomm.star(hosts, "10 Gbit/s", "5 us")
    begin = time.process_time()
    with pytest.raises(InputError, match=rf"{hosts}.*,\d\d\d,\d\d\d.* fewer ranks"):
        simcomm.run(algorithm, cluster, 1 << 20, record=False)
    assert time.process_time() - begin < 4  # a second, and what the machine's other work takes


def test_a_root_that_works_for_all_is_not_taken_for_ranks_that_all_do():
    assert estimate_operations(find_algorithm("broadcast/naive"), 20_000) < 100_000
