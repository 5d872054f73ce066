"""The data of the player: columns, buffers, positions and aggregates; and its page."""

import json
import re
from base64 import b64decode
from hashlib import sha256
from math import dist
from zlib import decompress

import numpy as np
import player_pages
import pytest
import viz_traces
from hypothesis import given
from hypothesis import strategies as st

import simcomm
from collectives import library
from collectives.errors import InputError
from collectives.records.limits import find_limits
from collectives.records.link_loads import link_loads
from collectives.records.trace import Trace
from ringlab.pictures.traces import OneRun, predict_runs
from scenarios import load
from simcomm.cluster.topologies import fat_tree, torus, two_level_tree
from viz.player import page
from viz.player import runs as played_runs
from viz.player.buffers import COMPLETE, follow_buffers
from viz.player.page import export, find_groups, place
from viz.player.runs import PlayedRun, aggregate, list_messages, pack

SLOW = """
cluster = { topology = "star", hosts = 8, bandwidth = "10 Gbit/s", latency = "5 us" }
collective = { name = "all_reduce", algorithms = ["ring"], sizes = ["1 MiB"] }
faults = { link = [{ between = ["h3", "s0"], share = 0.2 }] }
"""


def unpack(column):
    planes = np.frombuffer(decompress(b64decode(column["text"])), np.uint8)
    kind = np.dtype(column["type"]).newbyteorder("<")
    return np.ascontiguousarray(planes.reshape(kind.itemsize, -1).T).view(kind).reshape(-1)


@given(st.lists(st.integers(-(2**40), 2**40)) | st.lists(st.floats(allow_nan=False)))
def test_packed_player_column_is_unpacked_unchanged(values):
    column = pack(np.array(values))
    assert column["length"] == len(values)
    assert unpack(column).tolist() == values if values else column["text"]


PROGRAMS = [name for name in library() if not name.startswith("barrier/")]


@pytest.mark.parametrize("name", PROGRAMS)
def test_player_buffers_of_all_algorithms_end_complete(name):
    trace = simcomm.run(name, simcomm.star(8, "10 Gbit/s", "5 us"), 1 << 16)
    messages = trace.messages
    buffers = follow_buffers(trace)
    assert buffers is not None
    cells = buffers.start.copy()
    ends = messages.end[buffers.message]
    assert (np.diff(ends) >= 0).all()
    cells[buffers.cell] = 0
    for cell, value in zip(buffers.cell.tolist(), buffers.value.tolist(), strict=True):
        cells[cell] = value
    wanted = buffers.wanted > 0
    assert (cells[wanted] == buffers.wanted[wanted] + COMPLETE).all()
    assert len(buffers.carried) == messages.count.sum()


def test_player_buffers_show_counts_of_17_ranks_and_none_of_65():
    def follow(ranks):
        trace = simcomm.run("all_reduce/ring", simcomm.star(ranks, "10 Gbit/s", "5 us"), 1 << 20)
        return follow_buffers(trace)

    assert follow(17).wanted.tolist() == [17] * 17**2
    assert follow(65) is None


def test_program_named_in_a_trace_title_is_not_executed(tmp_path):
    """A trace can come from an untrusted file."""
    script = tmp_path / "mine.py"
    script.write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    trace = Trace(f"all_reduce/{script}:mine", "predicted", 2, 1.0, viz_traces.ring(2).messages, algorithm=str(script))
    assert follow_buffers(trace) is None
    assert not (tmp_path / "ran").exists()


CLUSTERS = {
    "star": simcomm.star(8, "10 Gbit/s", "5 us"),
    "racks": load("two-racks").cluster,
    "tiers": fat_tree(4, "10 Gbit/s", "5 us"),
    "grid": torus([4, 4], "10 Gbit/s", "5 us"),
    "circle": simcomm.preset("dgx-1-v100"),
}


@pytest.mark.parametrize("kind", CLUSTERS)
def test_player_nodes_do_not_overlap(kind):
    cluster = CLUSTERS[kind]
    trace = simcomm.run("all_reduce/ring", cluster, 1 << 20)
    used = {node for message in trace.messages for node in message.route}
    layout = place(trace, trace.hosts, used)
    assert layout.kind == kind
    assert set(trace.hosts) <= layout.at.keys() <= {*trace.hosts, *used}
    assert all(-0.001 <= value <= 1.001 for at in layout.at.values() for value in at)
    places = list(layout.at.values())
    assert min(dist(a, b) for i, a in enumerate(places) for b in places[:i]) > 0.03


def test_player_totals_of_rank_groups_agree_with_messages():
    trace = simcomm.run("all_reduce/ring", two_level_tree(4, 2, "10 Gbit/s", "5 us", 1.0), 8 << 20)
    messages = trace.messages
    loads = link_loads(trace)
    groups = find_groups(trace, trace.hosts)
    assert groups == [("s0", 2), ("s1", 2), ("s2", 2), ("s3", 2)]  # switches in the order of ranks
    content = aggregate(trace, loads, find_limits(trace), groups)
    most = unpack(content["most"]).reshape(8, content["bins"]) / 255
    received = np.bincount(messages.dst, messages.end - messages.begin, 8) / trace.elapsed
    assert most.mean(axis=1) == pytest.approx(received, abs=0.005)
    assert unpack(content["flow"]).sum() == messages.nbytes.sum()
    assert (unpack(content["got"]).reshape(4, -1)[:, -1] == 255).all()
    assert unpack(content["reached"])[-1] == messages.step.max()
    link = content["links"][0]
    series = unpack(content["series"]).reshape(len(content["links"]), -1)[0] / 255
    assert series.mean() == pytest.approx(loads.use[link], abs=0.01)


def test_player_lists_slow_link_ranks_if_too_many_messages(monkeypatch):
    trace = player_pages.racks()[0].trace
    messages, limits = trace.messages, find_limits(trace)

    def listed():
        content = list_messages(trace, limits)
        keys = ("type", "length", "text")
        columns = {name: unpack(dict(zip(keys, column, strict=True))) for name, column in content["columns"].items()}
        return content["ranks"], columns

    ranks, columns = listed()
    assert ranks is None
    assert columns["bytes"].sum() == messages.nbytes.sum()
    monkeypatch.setattr(played_runs, "MOST_PACKED", 1000)
    monkeypatch.setattr(played_runs, "MOST_MESSAGES", 62 * 2 * 7)  # of seven ranks
    ranks, columns = listed()
    assert {12, 13, 14} <= set(ranks), "at the bad cable and beside it"
    assert len(ranks) == 7
    involved = np.isin(messages.src, ranks) | np.isin(messages.dst, ranks)
    assert columns["src"].tolist() == messages.src[involved].tolist()


def test_player_data_agrees_with_the_trace():
    runs = player_pages.star(("ring",))
    [run], trace = export("ring", runs)["runs"], runs[0].trace
    columns = {name: unpack(column) for name, column in run["columns"].items()}
    assert columns["bytes"].sum() == trace.messages.nbytes.sum()
    assert columns["end"] / (1 << 30) * trace.elapsed == pytest.approx(trace.messages.end, abs=1e-9 * trace.elapsed)
    assert columns["reduces"].tolist() == trace.messages.reduces.tolist()
    crossed = np.zeros(len(trace.links))
    for route, nbytes in zip(columns["route"], columns["bytes"], strict=True):
        crossed[run["routes"][route]] += nbytes
    assert crossed.tolist() == [link.nbytes for link in trace.links]
    assert run["limits"]["heading"] == find_limits(trace).heading


MIXED = [("all_reduce/ring", 512), ("all_reduce/double_tree", 512)]


@pytest.mark.parametrize("runs", [*([each] for each in player_pages.LARGE), MIXED])
def test_player_gives_each_rank_a_position_or_a_group(runs):
    data = export("x", [player_pages.large(*run) for run in runs])
    are_grouped = ["aggregate" in run for run in data["runs"]]
    assert len(are_grouped) == len(runs) and len(set(are_grouped)) == 1
    for run in data["runs"]:
        if not are_grouped[0]:
            assert None not in data["at"][: data["ranks"]]
            assert run["columns"]["src"]["length"] == run["count"] > 0
            continue
        groups = run["aggregate"]
        assert sum(groups["sizes"]) == groups["rows"] == data["ranks"]
        assert len(groups["sizes"]) == len(groups["groups"])
        assert groups["most"]["length"] == groups["rows"] * groups["bins"]


def test_runs_on_different_networks_are_rejected():
    star, racks = (
        PlayedRun(simcomm.run("all_reduce/ring", CLUSTERS[name], 1 << 10), "a") for name in ("star", "racks")
    )
    for played, message in (
        ([star, PlayedRun(viz_traces.ring(4), "b")], "8 and 4 ranks; pass runs on the same network"),
        ([star, racks], "on different networks"),
        ([], "a player shows 1 to 9 runs, not 0"),
    ):
        with pytest.raises(InputError, match=message):
            export("x", played)
    with pytest.raises(InputError, match=r"x\.txt: a player is written as \.html"):
        page.write_player("x", [star], "x.txt")


def test_player_shows_each_algorithm_and_a_run_without_faults(tmp_path):
    assert [run.name for run in predict_runs(OneRun(load("two-racks")))][-1] == "ring"
    (tmp_path / "slow.toml").write_text(SLOW)
    slow, quiet = predict_runs(OneRun(load(tmp_path / "slow.toml")))
    assert (slow.name, quiet.name) == ("ring", "ring without faults")
    assert slow.trace.elapsed > 4 * quiet.trace.elapsed


def test_player_page_is_small_and_has_a_strict_content_policy():
    text = page.render_player("Title", player_pages.star(("ring",), 1 << 10))
    script, style, body = page.read_sources()
    assert sum(len(part.encode()) for part in (script, style, body)) < 64 * 1024
    [policy] = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text)
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    assert rules.pop("default-src") == rules.pop("base-uri") == rules.pop("form-action") == "'none'"
    for kind, element in (("script-src", "script"), ("style-src", "style")):
        [inside] = re.findall(rf"<{element}>(.*?)</{element}>", text, re.DOTALL)
        digest = b64decode(rules.pop(kind).removeprefix("'sha256-").removesuffix("'"))
        assert digest == sha256(inside.encode()).digest()
    assert rules == {}
    assert not re.search(r"""https?://|style=["']|\ssrc=|@import|url\(""", text)


def test_player_page_data_is_escaped_json():
    text = page.render_player(player_pages.EVIL, player_pages.hostile())
    assert text.count("</script>") == 2
    [data] = re.findall(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert json.loads(data)["title"] == player_pages.EVIL
    assert not set("<>&\u2028\u2029") & set(data)
