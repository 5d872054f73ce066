"""The picture of a topology: all links with their bandwidth, without overlapping labels."""

from collections import Counter
from collections.abc import Callable
from functools import partial
from itertools import combinations
from re import findall

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Annotation, Text

import simcomm
from simcomm.cluster import topologies
from simcomm.cluster.cluster import Cluster
from simcomm.cluster.hardware import preset
from viz.layout.groups import WIDEST_OF_GROUPS, group_nodes
from viz.layout.layout import find_tiers
from viz.topology import topology_figure

LINK = ("10 Gbit/s", "1 us")
NETWORKS: dict[str, Callable[[], Cluster]] = {
    "DGX-1": partial(preset, "dgx-1-v100"),
    "4 x DGX-1": partial(preset, "dgx-1-v100", 4),
    "16 x DGX H100": partial(preset, "dgx-h100", 16),
    "fat tree of 128 hosts": partial(topologies.fat_tree, 8, *LINK),
    "fat tree of 16 hosts": partial(topologies.fat_tree, 4, *LINK),
    "100 racks": partial(topologies.two_level_tree, 100, 16, *LINK, oversubscription=4.0),
    "300 hosts on a switch": partial(topologies.star, 300, *LINK),
    "two racks": partial(topologies.two_level_tree, 2, 4, *LINK),
    "torus": partial(topologies.torus, [4, 4], *LINK),
}


def picture(cluster: Cluster) -> Figure:
    return topology_figure(cluster.graph, cluster.hosts, cluster.title)


def cables(cluster: Cluster) -> Counter[tuple[str, float]]:
    ends = {
        frozenset((a, b)): (data.get("medium", ""), data["bandwidth"]) for a, b, data in cluster.graph.edges(data=True)
    }
    return Counter(ends.values())


@pytest.mark.parametrize("name", NETWORKS)
def test_topology_groups_contain_each_node_rank_and_link_once(name: str) -> None:
    cluster = NETWORKS[name]()
    groups = group_nodes(cluster.graph, cluster.hosts)
    members = [member for group in groups.groups.values() for member in group.members]
    assert sorted(members) == sorted(cluster.graph)
    assert sorted(rank for group in groups.groups.values() for rank in group.ranks) == list(range(cluster.world_size))
    drawn: Counter[tuple[str, float]] = Counter()
    for a, b, data in groups.graph.edges(data=True):
        if a < b:
            drawn.update(data["cables"])
    of = {member: group for group, content in groups.groups.items() for member in content.members}
    inside = cluster.graph.edge_subgraph([(a, b) for a, b in cluster.graph.edges if of[a] == of[b]])
    hidden = Counter({frozenset((a, b)): 1 for a, b in inside.edges}).total()
    assert drawn.total() + hidden == cables(cluster).total()
    if not groups.is_whole:
        assert max(Counter(find_tiers(groups.graph, groups.hosts).values()).values()) <= WIDEST_OF_GROUPS
        assert all(groups.groups[host].kind in ("host", "machine") for host in groups.hosts)


@given(st.integers(0, 5), st.lists(st.tuples(st.integers(0, 90), st.integers(0, 90)), max_size=60))
@settings(max_examples=12, deadline=None)
def test_topology_groups_contain_every_node_of_a_random_network(switches: int, joined: list[tuple[int, int]]) -> None:
    links = [(f"h{host}", f"s{host % (switches + 1)}", *LINK) for host in range(60)]
    links += [(f"s{a}", f"s{b}", *LINK) for a, b in {(min(pair), max(pair)) for pair in joined} if a != b]
    links += [(f"s{number}", "s91", *LINK) for number in range(91)]
    cluster = simcomm.from_links(links)
    groups = group_nodes(cluster.graph, cluster.hosts)
    assert sorted(m for group in groups.groups.values() for m in group.members) == sorted(cluster.graph)
    assert all(groups.graph.has_edge(b, a) for a, b in groups.graph.edges)


@pytest.mark.parametrize("name", ["DGX-1", "fat tree of 16 hosts", "two racks", "torus"])
def test_line_label_states_the_bandwidth_of_the_link(name: str) -> None:
    cluster = NETWORKS[name]()
    lines = [line for axes in picture(cluster).axes for line in axes.lines if line.get_gid()]
    assert len({line.get_gid() for line in lines}) == cables(cluster).total()
    units = {"GB/s": 1e9, "Gbit/s": 1e9 / 8}
    for line in lines:
        matches = findall(r": ([\d.]+) (\S+) each way", str(line.get_label()))
        a, b = str(line.get_gid()).split(" - ")
        known = cluster.graph.edges[a, b]["bandwidth"]
        expected = [pytest.approx(known, rel=1e-3)] if known < 1e300 else []
        assert [float(number) * units[unit] for number, unit in matches] == expected


def test_topology_plot_draws_a_large_fat_tree_as_pods() -> None:
    figure = picture(NETWORKS["fat tree of 128 hosts"]())
    words = Counter(text.get_text() for axes in figure.axes for text in axes.texts)
    assert [words[f"16 hosts\nranks {16 * pod}–{16 * pod + 15}"] for pod in range(8)] == [1] * 8
    assert words["4 switches"] == 8 + 8 + 4
    key = [text.get_text() for legend in figure.legends for text in legend.get_texts()]
    assert key[:2] == ["16 x 10 Gbit/s each way", "4 x 10 Gbit/s each way"]


@pytest.mark.parametrize(
    "name", ["DGX-1", "4 x DGX-1", "16 x DGX H100", "fat tree of 128 hosts", "100 racks", "two racks"]
)
def test_topology_plot_labels_do_not_overlap(name: str) -> None:
    figure = picture(NETWORKS[name]())
    FigureCanvasAgg(figure).draw()
    texts = [text for text in figure.findobj(Text) if isinstance(text, Text) and text.get_text().strip()]
    for a, b in combinations(texts, 2):
        first, other = a.get_window_extent().padded(-0.5), b.get_window_extent().padded(-0.5)
        assert not first.overlaps(other), (a.get_text(), b.get_text())
    paper = figure.bbox.padded(-5)
    for at in [(text.get_bbox_patch() or text).get_window_extent() for text in texts]:
        assert paper.x0 <= at.x0 and at.x1 <= paper.x1 and paper.y0 <= at.y0 and at.y1 <= paper.y1


def test_topology_of_this_machine_shows_its_memory() -> None:
    figure = picture(simcomm.this_machine(4))
    words = [text.get_text() for text in figure.axes[0].texts]
    assert sorted(words) == ["0", "1", "2", "3", "h0", "h1", "h2", "h3", "memory of this machine"]
    assert len([line for line in figure.axes[0].lines if line.get_gid()]) == 4


def test_names_in_a_topology_plot_are_not_rendered_as_math() -> None:
    graph: nx.DiGraph[str] = nx.DiGraph()
    for host in ("$\\frac", "h$1$"):
        graph.add_edge(host, "s$^{", bandwidth=1e9, medium="$x^")
    figure = topology_figure(graph, ["$\\frac", "h$1$"], "$\\frac{")
    FigureCanvasAgg(figure).draw()
    assert all(not text.get_parse_math() for text in figure.axes[0].texts if isinstance(text, Annotation))
