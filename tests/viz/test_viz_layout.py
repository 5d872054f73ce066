"""Layouts: nodes inside the box, apart, in order, and reproducible."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from math import dist, hypot

import numpy as np
import pytest
import viz_traces
from hypothesis import given
from hypothesis import strategies as st

import simcomm
from collectives.records.trace import Trace, TracedLink
from simcomm.cluster import topologies
from simcomm.cluster.cluster import Cluster
from simcomm.cluster.hardware import machine_entries, preset
from viz.layout.geometry import Box
from viz.layout.layout import lay_out

BOX = Box(50, 100, 450, 400)


def test_star_layout_has_central_switch_and_clockwise_ranks() -> None:
    layout = lay_out(viz_traces.ring(4), BOX)
    assert layout.positions["s0"] == pytest.approx((250, 250))
    for rank, place in enumerate(((250, 400), (450, 250), (250, 100), (50, 250))):
        assert layout.positions[f"h{rank}"] == pytest.approx(place)
    forth, back = layout.lines["h2", "s0"], layout.lines["s0", "h2"]
    assert hypot(*(forth.mean(axis=0) - back.mean(axis=0))) > 5, "each direction has its own line"


def test_layout_draws_two_racks_left_and_right() -> None:
    trace = viz_traces.two_racks()
    layout = lay_out(trace, BOX)
    places = layout.positions
    assert places == lay_out(replace(trace, links=trace.links[::-1]), BOX).positions
    for rank in range(8):
        near, other = ("s0", "s1") if rank < 4 else ("s1", "s0")
        assert (places[f"h{rank}"][0] < 250) == (rank < 4)
        assert dist(places[f"h{rank}"], places[near]) < dist(places[f"h{rank}"], places[other])
    line = layout.route_line(3, 4, trace.messages[0].route)
    for point, host in ((line[0], "h3"), (line[-1], "h4")):
        assert dist(point, places[host]) < 1.2 * layout.radius


@pytest.mark.parametrize("ranks", [2, 8, 12])
def test_messages_on_this_machine_cross_its_memory(ranks: int) -> None:
    layout = lay_out(viz_traces.this_machine(ranks), BOX)
    assert layout.memory is not None
    line = layout.route_line(0, 1, ("h0", "s0", "s1", "h1"))
    assert all(layout.memory.bottom < y < layout.memory.top for y in (line[1][1], line[2][1]))
    assert line[0][1] == line[3][1] > layout.memory.top


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=12), st.integers(1, 9))
def test_layout_places_all_nodes(joined: list[tuple[int, int]], ranks: int) -> None:
    ends = [(f"h{rank}", f"s{rank % 3}") for rank in range(ranks)] + [(f"s{a}", f"s{b}") for a, b in joined if a != b]
    links = [TracedLink(a, b, 1e9, 0.0, 0.0) for a, b in ends]
    trace = Trace("x", "predicted", ranks, 1.0, links=links, hosts=[f"h{rank}" for rank in range(ranks)])
    layout = lay_out(trace, BOX)
    assert set(layout.positions) == {node for edge in ends for node in edge}
    assert all(np.isfinite(place).all() for place in layout.positions.values())


def predicted(cluster: Cluster) -> Trace:
    return simcomm.run("all_reduce/ring", cluster, nbytes=cluster.world_size * 64)


LINK = ("100 Gbit/s", "1 us")
NETWORKS: dict[str, Callable[[], Cluster]] = {
    **{f"star of {hosts}": partial(topologies.star, hosts, *LINK) for hosts in (2, 3, 5, 8, 24, 64)},
    **{name: partial(preset, name) for name in machine_entries()},
    "2 x DGX A100": partial(preset, "dgx-a100", 2),
    "2 x g4dn": partial(preset, "g4dn.12xlarge", 2),
    "torus 4 x 4": partial(topologies.torus, [4, 4], *LINK),
    "torus 3 x 5": partial(topologies.torus, [3, 5], *LINK),
    "torus 2 x 4 x 2": partial(topologies.torus, [2, 4, 2], *LINK),
    "torus 4 x 4 x 4": partial(topologies.torus, [4, 4, 4], *LINK),
    "fat tree": partial(topologies.fat_tree, 4, *LINK),
    "two racks": partial(topologies.two_level_tree, 2, 4, *LINK),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_layout_nodes_are_apart_and_inside_the_box(name: str) -> None:
    layout = lay_out(predicted(NETWORKS[name]()), BOX)
    nodes = list(layout.positions)
    at, radii = np.array(list(layout.positions.values())), np.array([layout.radii[node] for node in nodes])
    distances = np.hypot(*(at[:, None] - at[None]).transpose(2, 0, 1))
    reach = radii[:, None] + radii[None]
    assert (distances + np.diag(np.full(len(nodes), np.inf)) > np.minimum(reach, 5.0)).all()
    assert len(nodes) > 64 or (distances + np.diag(np.full(len(nodes), np.inf)) > 0.9 * reach).all()
    for points in (at, *layout.lines.values()):
        assert (points >= np.array([BOX.left, BOX.bottom]) - 6).all()
        assert (points <= np.array([BOX.right, BOX.top]) + 6).all()


def test_machine_layout_has_rows_and_omits_unused_components() -> None:
    detour = lay_out(predicted(preset("rtx4090-pcie")), BOX)
    assert detour.kinds["n0.memory0"] == "memory"
    assert detour.radii["n0.memory0"] <= detour.radius
    direct = lay_out(predicted(preset("dgx-h100")), BOX)
    assert {"cpu", "pcie", "nvswitch"} <= {*direct.kinds.values()} and not {"memory", "nic"} & {*direct.kinds.values()}
    places = direct.positions
    rows = {node: round(y) for node, (_, y) in places.items()}
    assert len({rows[f"n0.gpu{i}"] for i in range(8)}) == 1
    assert rows["n0.nvswitch"] < rows["n0.gpu0"] < rows["n0.pcie0"] < rows["n0.cpu0"]
    assert [places[f"n0.gpu{i}"][0] for i in range(8)] == sorted(places[f"n0.gpu{i}"][0] for i in range(8))


def test_nvlinks_between_distant_gpus_are_drawn_as_arcs() -> None:
    layout = lay_out(predicted(preset("dgx-1-v100")), BOX)
    far, near = layout.lines["n0.gpu0", "n0.gpu3"], layout.lines["n0.gpu0", "n0.gpu1"]
    assert far[:, 1].min() < layout.positions["n0.gpu0"][1] - layout.radius / 2
    assert len(near) == 2
    assert layout.route_line(0, 3, ("n0.gpu0", "n0.gpu3")).tolist() == far.tolist()


def test_torus_layout_has_rows_columns_and_arcs() -> None:
    layout = lay_out(predicted(topologies.torus([3, 5], *LINK)), BOX)
    assert len({round(y) for _, y in layout.positions.values()}) == 3
    assert len({round(x) for x, _ in layout.positions.values()}) == 5
    assert layout.positions["h0"][1] > layout.positions["h5"][1]
    assert layout.lines["h4", "h0"][:, 1].max() > layout.positions["h0"][1] + 10
    assert len(layout.lines["h0", "h1"]) == 2
    ring = lay_out(predicted(topologies.ring(8, *LINK)), BOX).positions
    assert len({round(y) for _, y in ring.values()}) > 3, "a ring is not a torus"
