"""Ranks are placed in blocks, round-robin or by list; a bad order slows a ring down."""

import pytest

import simcomm
from collectives import InputError
from simcomm.cluster import placement, topologies

LINK = ("10 Gbit/s", "0 us")
RATE = 1.25e9


def test_round_robin_alternates_groups_and_blocks_fill_them():
    cluster = topologies.two_level_tree(2, 3, *LINK)
    spread = placement.place_round_robin(cluster)
    assert spread.hosts == ("h0", "h3", "h1", "h4", "h2", "h5")
    assert placement.place_in_blocks(spread).hosts == cluster.hosts == placement.place_in_blocks(cluster).hosts
    ring = topologies.ring(4, *LINK)  # without switches, each host is a group
    assert placement.place_round_robin(ring).hosts == ring.hosts


def test_round_robin_alternates_between_machines_of_unequal_size():
    cluster = simcomm.preset("rtx4090-pcie", nodes=2, gpus_per_node=2, bandwidth="25 Gbit/s", latency="1 us")
    assert placement.place_round_robin(cluster).hosts == ("n0.gpu0", "n1.gpu0", "n0.gpu1", "n1.gpu1")
    uneven = placement.place_on(cluster, ["n0.gpu0", "n0.gpu1", "n1.gpu1"])
    assert placement.place_round_robin(uneven).hosts == ("n0.gpu0", "n1.gpu1", "n0.gpu1")


@pytest.mark.parametrize(("per_rack", "ratio"), [(2, 1), (4, 2), (6, 4)])
def test_alternating_ring_is_slowed_by_oversubscription(per_rack: int, ratio: int):
    """All hosts of a rack send over the trunk, which has 1/ratio of their bandwidth; in order, only one does."""
    cluster = topologies.two_level_tree(2, per_rack, *LINK, oversubscription=ratio)
    p, nbytes = 2 * per_rack, 2 * per_rack << 16
    in_order, alternating = (
        simcomm.run("all_reduce/ring", place(cluster), nbytes).elapsed
        for place in (placement.place_in_blocks, placement.place_round_robin)
    )
    trunk = per_rack / ratio  # in units of one host's rate
    assert in_order == pytest.approx(2 * (p - 1) / p * nbytes / RATE / min(1, trunk), rel=1e-9)
    assert alternating == pytest.approx(2 * (p - 1) / p * nbytes / RATE * max(1, ratio), rel=1e-9)


def test_place_on_uses_listed_hosts():
    cluster = placement.place_on(simcomm.star(4, *LINK), ["h3", "h1"])
    trace = simcomm.run("all_reduce/ring", cluster, nbytes=1 << 16)
    assert {message.route for message in trace.messages} == {("h3", "s0", "h1"), ("h1", "s0", "h3")}


@pytest.mark.parametrize(
    ("hosts", "message"),
    [
        (["h0", "h9"], "rank 1: host 'h9' does not exist; hosts are h0, h1, h2"),
        (["h0", "s0"], "rank 1: host 's0' does not exist"),
        (["h1", "h0", "h1"], "rank 2: host 'h1' already has rank 0; use each host once"),
        ([], "hosts must not be empty; use at least one of h0, h1, h2"),
        ("h0", "hosts must be a list of nodes, not 'h0'"),
    ],
)
def test_place_on_rejects_invalid_hosts(hosts: list[str], message: str):
    with pytest.raises(InputError) as error:
        placement.place_on(simcomm.star(3, *LINK), hosts)
    assert message in str(error.value)


def test_make_room_adds_hosts_with_the_same_links():
    cluster = placement.make_room(simcomm.two_level_tree(2, 2, *LINK), 7)
    assert cluster.world_size == 7 and cluster.title.endswith(", each host 2 times")
    (link,) = {tuple(data.values()) for a, _, data in cluster.graph.edges(data=True) if a.startswith("h")}
    assert link == tuple(simcomm.two_level_tree(2, 2, *LINK).graph.edges["h0", "s0"].values())
    trace = simcomm.run("all_reduce/ring", cluster, nbytes=1 << 16)
    assert ("h1.1", "s0", "s2", "s1", "h2") in {message.route for message in trace.messages}
    assert placement.make_room(simcomm.star(4, *LINK), 3).hosts == ("h0", "h1", "h2")


def test_make_room_rejects_hosts_that_forward():
    with pytest.raises(InputError, match="9 ranks do not fit"):
        placement.make_room(simcomm.ring(4, *LINK), 9)
