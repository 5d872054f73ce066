"""Placement of ranks: block, round-robin, by list, and what a bad order costs."""

import pytest

import simcomm
from collectives import InputError
from simcomm.cluster import placement, topologies

LINK = ("10 Gbit/s", "0 us")
RATE = 1.25e9


def test_block_fills_one_group_after_the_other_and_round_robin_takes_one_of_each_in_turn():
    cluster = topologies.two_level_tree(2, 3, *LINK)
    spread = placement.place_round_robin(cluster)
    assert spread.hosts == ("h0", "h3", "h1", "h4", "h2", "h5")
    assert placement.place_in_blocks(spread).hosts == cluster.hosts == placement.place_in_blocks(cluster).hosts
    assert spread.graph is cluster.graph


def test_groups_are_machines_and_need_not_be_of_one_size():
    cluster = simcomm.preset("rtx4090-pcie", nodes=2, gpus_per_node=2, bandwidth="25 Gbit/s", latency="1 us")
    assert placement._groups(cluster) == [["n0.gpu0", "n0.gpu1"], ["n1.gpu0", "n1.gpu1"]]
    assert placement.place_round_robin(cluster).hosts == ("n0.gpu0", "n1.gpu0", "n0.gpu1", "n1.gpu1")
    uneven = placement.place_on(cluster, ["n0.gpu0", "n0.gpu1", "n1.gpu1"])
    assert placement.place_round_robin(uneven).hosts == ("n0.gpu0", "n1.gpu1", "n0.gpu1")


def test_hosts_without_a_switch_stand_alone():
    cluster = topologies.ring(4, *LINK)
    assert placement._groups(cluster) == [[host] for host in cluster.hosts]
    assert placement.place_round_robin(cluster).hosts == cluster.hosts


@pytest.mark.parametrize("per_rack", [2, 4, 6])
@pytest.mark.parametrize("ratio", [1, 2, 4])
def test_a_ring_that_alternates_between_two_racks_pays_the_oversubscription(per_rack: int, ratio: int):
    """All of a rack's hosts send over the trunk, which gives 1/ratio of their rate together; in order only one does."""
    cluster = topologies.two_level_tree(2, per_rack, *LINK, oversubscription=ratio)
    p = 2 * per_rack
    nbytes = p << 16
    in_order, alternating = (
        simcomm.run("all_reduce/ring", placed(cluster), nbytes).elapsed
        for placed in (placement.place_in_blocks, placement.place_round_robin)
    )
    trunk = per_rack / ratio  # of one host's rate
    assert in_order == pytest.approx(2 * (p - 1) / p * nbytes / RATE / min(1, trunk), rel=1e-9)
    assert alternating == pytest.approx(2 * (p - 1) / p * nbytes / RATE * max(1, ratio), rel=1e-9)


def test_ranks_live_where_the_list_says():
    cluster = placement.place_on(simcomm.star(4, *LINK), ["h3", "h1"])
    assert (cluster.world_size, cluster.hosts) == (2, ("h3", "h1"))
    trace = simcomm.run("all_reduce/ring", cluster, nbytes=1 << 16)
    assert {message.route for message in trace.messages} == {("h3", "s0", "h1"), ("h1", "s0", "h3")}


@pytest.mark.parametrize(
    ("hosts", "message"),
    [
        (["h0", "h9"], "rank 1 on 'h9': no such host; there are h0, h1, h2"),
        (["h0", "s0"], "rank 1 on 's0': no such host"),
        (["h1", "h0", "h1"], "rank 2 on 'h1': rank 0 is there, and a host holds one"),
        ([], "no rank is placed; name at least one of h0, h1, h2"),
    ],
)
def test_a_list_that_does_not_fit_is_refused(hosts: list[str], message: str):
    with pytest.raises(InputError) as refusal:
        placement.place_on(simcomm.star(3, *LINK), hosts)
    assert message in str(refusal.value)


def test_more_ranks_than_hosts_get_hosts_beside_them_with_the_same_links():
    cluster = placement.make_room(simcomm.two_level_tree(2, 2, *LINK), 7)
    assert cluster.world_size == 7 and cluster.title.endswith(", each host 2 times")
    (link,) = {tuple(data.values()) for a, _, data in cluster.graph.edges(data=True) if a.startswith("h")}
    assert link == tuple(simcomm.two_level_tree(2, 2, *LINK).graph.edges["h0", "s0"].values())
    trace = simcomm.run("all_reduce/ring", cluster, nbytes=1 << 16)
    assert ("h1.1", "s0", "s2", "s1", "h2") in {message.route for message in trace.messages}
    assert placement.make_room(simcomm.star(4, *LINK), 3).hosts == ("h0", "h1", "h2")


def test_hosts_that_forward_get_none_beside_them():
    with pytest.raises(InputError, match="9 ranks do not fit"):
        placement.make_room(simcomm.ring(4, *LINK), 9)


def test_placement_refuses_wrong_types():
    with pytest.raises(InputError, match="cluster is 8; give a cluster, for example"):
        placement.place_in_blocks(8)
    with pytest.raises(InputError, match="hosts is 'h0'; give a list of nodes"):
        placement.place_on(simcomm.star(3, *LINK), "h0")
