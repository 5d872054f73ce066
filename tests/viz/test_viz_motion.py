"""Motion of messages and contents of buffers in an animation, without drawing."""

from dataclasses import replace

import numpy as np
import pytest
import viz_traces
from hypothesis import given
from hypothesis import strategies as st

from collectives import Message, Span, Trace
from viz.animation.motion import Motion, follow_messages, frame_times, link_use, point_along
from viz.animation.panels import StepCounter, find_filling
from viz.layout.geometry import Box
from viz.layout.layout import lay_out

BOX = Box(50, 100, 450, 400)


def follow(trace: Trace, count: int = 120) -> Motion:
    return follow_messages(trace, lay_out(trace, BOX), frame_times(trace, count))


def test_message_position_follows_the_animation_time() -> None:
    trace = viz_traces.ring(8)
    moving = follow(trace)
    for frame in range(0, 119, 7):
        for index in moving.active(frame):
            message, line = trace.messages[index], moving.lines[moving.line[index]]
            share = (moving.times[frame] - message.begin) / (message.end - message.begin)
            assert moving.position(index, frame) == pytest.approx(point_along(line, share))


def test_short_messages_are_slowed_down() -> None:
    short = [Message(0, 1, step, 0, 1000, step * 0.001, (step + 1) * 0.001) for step in range(5)]
    trace = Trace("all_reduce/x", "predicted", 2, 1.0, [*short, Message(1, 0, 5, 0, 10**6, 0.005, 1.0)])
    shown = [sum(index in follow(trace).active(frame) for frame in range(120)) for index in range(6)]
    assert min(shown) >= 3
    assert shown[5] > 50


moments = st.floats(0, 1, allow_nan=False)


@given(st.lists(st.tuples(moments, moments), min_size=1, max_size=30), st.integers(2, 60))
def test_messages_are_shown_while_in_flight(times: list[tuple[float, float]], count: int) -> None:
    messages = [Message(i % 3, (i + 1) % 3, i, i, 100, min(pair), max(pair)) for i, pair in enumerate(times)]
    moving = follow(Trace("x", "measured", 3, 1.0, messages), count)
    assert (np.diff(moving.times) >= 0).all() and moving.times[0] == 0 and moving.times[-1] == 1
    for index, message in enumerate(messages):
        frames = [frame for frame in range(count) if index in moving.active(frame)]
        assert frames
        if len(frames) > 1:
            assert message.begin <= moving.times[frames[0]] and moving.times[frames[-1]] < message.end
        for frame in frames:
            assert 0 <= moving.share(index, frame) <= 1


def test_link_use_adds_the_rates_of_its_messages() -> None:
    messages = [Message(a, 0, 0, 0, 1000, 0.0, 2.0, (f"h{a}", "s0", "h0")) for a in (1, 2)]
    moving = follow(Trace("x", "predicted", 3, 2.0, messages, hosts=["h0", "h1", "h2"]))
    use = link_use(moving, moving.active(5), {("h1", "s0"): 1000.0, ("s0", "h0"): 2000.0, ("h2", "s0"): 100.0})
    assert use == {("h1", "s0"): 0.5, ("s0", "h0"): 0.5, ("h2", "s0"): 1.0}


def test_ring_buffers_fill_to_a_half_midway_and_fully_at_the_end() -> None:
    trace = viz_traces.ring(4)
    filling, naive = find_filling(trace), find_filling(viz_traces.naive(4))
    assert filling is not None and naive is not None
    assert (filling.at(0)[0] == 0.25).all() and not filling.at(0)[1].any()
    shares, complete = filling.at(trace.elapsed / 2 + 1e-9)
    visited = np.array([[(rank - chunk - 1) % 4 + 1 for chunk in range(4)] for rank in range(4)])  # from c + 1 on
    assert shares == pytest.approx(visited / 4)
    assert (complete == (visited == 4)).all()
    assert filling.at(trace.elapsed)[1].all()
    assert naive.at(naive.times[3])[0][:, 0] == pytest.approx([1, 0.25, 0.25, 0.25]), "complete at the root first"


def test_animation_hides_buffers_if_messages_match_no_algorithm() -> None:
    trace = replace(viz_traces.ring(3), algorithm="")
    other = [message._replace(chunk=(message.chunk + 1) % 3) for message in trace.messages]
    assert find_filling(replace(trace, messages=other)) is None
    assert find_filling(replace(trace, title="all_gather/ring")) is None
    assert find_filling(replace(trace, title="mine/unknown")) is None
    assert find_filling(replace(trace, messages=[])) is None


REDUCING = replace(viz_traces.naive(2), elapsed=10.0, spans=[Span(0, "reduce", 0, 8.0, 9.0)])


@pytest.mark.parametrize(
    ("trace", "times"),
    [
        (viz_traces.ring(8), {0.0: "step 1 of 14", 0.99: "step 14 of 14", 1.0: "done"}),
        (viz_traces.naive(4), {0.4: "message 3 of 6"}),
        (viz_traces.training(), {0.25: "training step 3 of 10"}),
        (REDUCING, {0.7: "", 0.85: "reducing", 1.0: "done"}),
    ],
)
def test_step_counter_states_the_current_step_or_message(trace: Trace, times: dict[float, str]) -> None:
    counter = StepCounter(trace)
    assert {share: counter.describe(share * trace.elapsed) for share in times} == times
    if trace.world_size == 8:
        assert counter.marks() == pytest.approx(np.arange(14) / 14)
