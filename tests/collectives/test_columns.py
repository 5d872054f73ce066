"""Check that rows stored as columns stay equal, take less memory, and survive a file."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import simcomm
from collectives import Message, Messages, Span, Spans, Trace, read_trace
from collectives.records import columns
from collectives.records.messages import MessageRoutes
from collectives.records.waits import critical_path, waiting_seconds
from simcomm.performance_models.options import ENGINES

NODES = ("h0", "h1", "s0", "s1")
WHOLE = st.integers(0, 3) | st.integers(0, (1 << 63) - 1)
SECONDS = st.floats(0, 1e6)


@st.composite
def messages(draw: Any) -> Message:
    numbers = [draw(WHOLE) for _ in range(8)]
    posted, route = sorted([draw(SECONDS), draw(SECONDS)]), tuple(draw(st.lists(st.sampled_from(NODES), max_size=4)))
    begin, order = posted[1], draw(st.permutations(posted))
    ends = draw(st.integers(0, 4)), draw(st.integers(0, 4))
    times = begin, begin + draw(SECONDS)
    lands = (draw(st.booleans()), *order, numbers[7])
    return Message._make([*ends, *numbers[:3], *times, route, *numbers[3:7], *lands])


@st.composite
def spans(draw: Any) -> Span:
    begin = draw(SECONDS)
    name = draw(st.sampled_from(["reduce", "sync", "é <&> \u2028"]))
    return Span(draw(st.integers(0, 4)), name, draw(WHOLE), begin, begin + draw(SECONDS), draw(WHOLE), draw(WHOLE))


@settings(deadline=None, max_examples=40)
@given(st.lists(messages(), max_size=12), st.lists(spans(), max_size=12), st.sampled_from([0, 5, 2000]))
def test_message_columns_round_trip_to_rows_and_trace_files(
    tmp_path_factory: pytest.TempPathFactory, rows: list[Message], named: list[Span], plain_up_to: int
):
    trace = Trace("all_reduce/ring", "predicted", 5, 1.0, rows, named)
    assert list(trace.messages) == rows and list(trace.spans) == named
    assert [trace.messages[number] for number in range(-len(rows), len(rows))] == rows + rows
    file = tmp_path_factory.getbasetemp() / "round.trace.json"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columns, "PLAIN_UP_TO", plain_up_to)
        trace.write(file)
    assert read_trace(file) == trace
    assert list(read_trace(file).messages) == rows
    halves = [Messages.of(rows[: len(rows) // 2]), Messages.of(rows[len(rows) // 2 :])]
    assert Messages.join(halves) == trace.messages
    assert Spans.join([Spans.of(named), Spans.of(named)]) == Spans.of(named + named)


@settings(deadline=None, max_examples=40)
@given(st.lists(messages(), min_size=1, max_size=12), st.randoms(use_true_random=False))
def test_message_equality_ignores_the_order_of_the_route_table(rows: list[Message], random: Any):
    first = Messages.of(rows)
    routes = list({row.route for row in rows})
    random.shuffle(routes)
    number = {route: at for at, route in enumerate(routes)}
    columns = {name: getattr(first, name) for name in Messages.COLUMNS}
    other = Messages(MessageRoutes.of(routes), **columns | {"route": np.array([number[row.route] for row in rows])})
    assert first == other
    changed = [rows[0]._replace(route=(*rows[0].route, "h9")), *rows[1:]]
    assert first != Messages.of(changed)


@pytest.mark.parametrize("name", ["all_reduce/ring", "all_to_all/direct", "broadcast/chain", "all_gather/bruck"])
def test_engines_agree_on_messages_waits_and_critical_path(name: str):
    star = simcomm.star(6, "10 Gbit/s", "5 us")
    simulated, other = (simcomm.run(name, star, 12_000, engine=engine) for engine in ENGINES)
    for column in ("src", "dst", "step", "dst_step", "chunk", "count", "into", "reduces", "nbytes", "channel"):
        names = ("src", "dst", "step", column)
        rows = [np.stack([getattr(trace.messages, name) for name in names]) for trace in (simulated, other)]
        assert sorted(rows[0].T.tolist()) == sorted(rows[1].T.tolist()), column
    assert (other.algorithm, other.chunks) == (simulated.algorithm, simulated.chunks) == (name, simulated.chunks)
    assert waiting_seconds(other) == pytest.approx(waiting_seconds(simulated), abs=1e-12)
    assert sum(leg.seconds for leg in critical_path(other)) == pytest.approx(simulated.elapsed)
    assert all(other.messages[leg.number].end == leg.end for leg in critical_path(other))


@pytest.mark.parametrize("engine", ENGINES)
def test_trace_records_the_capacity_of_degraded_links(engine: str):
    star = simcomm.star(3, "8 Gbit/s", "1 us")
    faults = simcomm.Faults(links=(simcomm.LinkFault(("h1", "s0"), 0.25, at=1e-3, lasting=1e-3),))
    trace = simcomm.run("all_reduce/ring", star, 6_000_000, faults=faults, engine=engine)
    rates = {(link.src, link.dst): link.rates for link in trace.links}
    assert [tuple(rate) for rate in rates["h1", "s0"]] == [(0.0, 1e9, 1e9), (1e-3, 2.5e8, 2.5e8), (2e-3, 1e9, 1e9)]
    assert [tuple(rate) for rate in rates["h0", "s0"]] == [(0.0, 1e9, 1e9)]
    (thin,) = (link for link in trace.links if (link.src, link.dst) == ("h1", "s0"))
    assert (thin.bandwidth, thin.could_carry(3e-3)) == (1e9, pytest.approx(2.25e6))
