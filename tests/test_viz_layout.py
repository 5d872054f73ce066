"""Where the pictures put things: inside, apart, in an order, and the same every time."""

from dataclasses import replace
from itertools import combinations
from math import hypot

import numpy as np
import pytest
import viz_traces
from hypothesis import given
from hypothesis import strategies as st

from collectives.trace import Trace, TracedLink
from viz.layout import Box, Layout, lay_out

BOX = Box(50, 100, 450, 400)


def apart(layout: Layout, a: str, b: str) -> float:
    (x, y), (u, v) = layout.places[a], layout.places[b]
    return hypot(x - u, y - v)


def test_a_star_has_its_switch_in_the_middle_and_ranks_clockwise_from_the_top() -> None:
    layout = lay_out(viz_traces.ring(4), BOX)
    assert layout.places["s0"] == pytest.approx((250, 250))
    assert [layout.places[f"h{rank}"] for rank in range(4)] == [
        pytest.approx(place) for place in ((250, 400), (450, 250), (250, 100), (50, 250))
    ]


def test_two_racks_stand_left_and_right_each_round_its_switch() -> None:
    layout = lay_out(viz_traces.two_racks(), BOX)
    assert all(layout.places[f"h{rank}"][0] < 250 for rank in range(4))
    assert all(layout.places[f"h{rank}"][0] > 250 for rank in range(4, 8))
    for rank in range(8):
        own, other = ("s0", "s1") if rank < 4 else ("s1", "s0")
        assert apart(layout, f"h{rank}", own) < apart(layout, f"h{rank}", other)


def fat_tree() -> Trace:
    ends = [(f"h{i}", f"s{i // 4}") for i in range(16)] + [
        (f"s{leaf}", f"s{spine}") for leaf in range(4) for spine in (4, 5)
    ]
    links = [TracedLink(x, y, 1e9, 0.0, 0.0) for a, b in ends for x, y in ((a, b), (b, a))]
    return Trace("all_reduce/ring", "predicted", 16, 1.0, links=links, hosts=[f"h{i}" for i in range(16)])


@pytest.mark.parametrize("trace", [viz_traces.two_racks(), fat_tree(), *map(viz_traces.ring, (1, 2, 3, 5, 8, 24, 64))])
def test_nothing_overlaps_and_hosts_stand_inside(trace: Trace) -> None:
    layout = lay_out(trace, BOX)
    for a, b in combinations(layout.places, 2):
        assert apart(layout, a, b) > layout.radii[a] + layout.radii[b], (a, b)
    for x, y in layout.places.values():
        assert BOX.left - 1e-6 <= x <= BOX.right + 1e-6 and BOX.bottom - 1e-6 <= y <= BOX.top + 1e-6


def test_the_two_directions_of_a_link_have_lanes_of_their_own() -> None:
    layout = lay_out(viz_traces.ring(8), BOX)
    there, back = layout.lanes["h2", "s0"], layout.lanes["s0", "h2"]
    assert hypot(*(there.mean(axis=0) - back.mean(axis=0))) > 5


def test_a_path_begins_at_its_sender_and_ends_at_its_receiver() -> None:
    trace = viz_traces.two_racks()
    layout = lay_out(trace, BOX)
    path = layout.path(3, 4, trace.messages[0].route)
    for point, host in ((path[0], "h3"), (path[-1], "h4")):
        assert hypot(*(point - np.array(layout.places[host]))) < 1.2 * layout.radius


def test_without_a_route_the_path_is_straight() -> None:
    trace = replace(viz_traces.ring(4), links=[], hosts=[], nodes=[], messages=[])
    path = lay_out(trace, BOX).path(0, 2, ())
    assert len(path) == 2
    assert path[0][0] == pytest.approx(path[1][0])


@pytest.mark.parametrize("ranks", [2, 8, 12])
def test_messages_on_this_machine_cross_its_memory(ranks: int) -> None:
    layout = lay_out(viz_traces.this_machine(ranks), BOX)
    assert layout.memory is not None
    path = layout.path(0, 1, ("h0", "s0", "s1", "h1"))
    assert all(layout.memory.bottom < y < layout.memory.top for y in (path[1][1], path[2][1]))
    assert path[0][1] == path[3][1] > layout.memory.top


def test_a_star_with_two_switches_is_no_memory() -> None:
    assert lay_out(viz_traces.two_racks(), BOX).memory is None


def test_the_order_of_links_does_not_matter() -> None:
    trace = viz_traces.two_racks()
    turned = lay_out(replace(trace, links=trace.links[::-1]), BOX)
    assert turned.places == lay_out(trace, BOX).places


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=12), st.integers(1, 9))
def test_any_network_gets_a_place_for_every_node(joined: list[tuple[int, int]], ranks: int) -> None:
    ends = [(f"h{rank}", f"s{rank % 3}") for rank in range(ranks)] + [(f"s{a}", f"s{b}") for a, b in joined if a != b]
    links = [TracedLink(a, b, 1e9, 0.0, 0.0) for a, b in ends]
    trace = Trace("x", "predicted", ranks, 1.0, links=links, hosts=[f"h{rank}" for rank in range(ranks)])
    layout = lay_out(trace, BOX)
    assert set(layout.places) == {node for edge in ends for node in edge}
    assert all(np.isfinite(place).all() for place in layout.places.values())
