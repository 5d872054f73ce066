"""The space-time picture: a mark where it belongs, the same bytes every time."""

from dataclasses import replace
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
import viz_traces
from PIL import Image

import viz
from collectives import Message, Trace
from viz.space_time import render_space_time
from viz.style import PHASES, chunk_colours, rgb


def pixels(trace: Trace) -> np.ndarray:
    with Image.open(BytesIO(render_space_time(trace))) as image:
        return np.asarray(image.convert("RGB")).astype(int)


def near(picture: np.ndarray, colour: str) -> np.ndarray:
    """Rows and columns of the pixels of a colour, shape [pixels, 2]; the right margin with the key left out."""
    wanted = np.array([round(255 * part) for part in rgb(colour)])
    return np.argwhere(np.abs(picture[:, :1295] - wanted).max(axis=2) < 4)


@pytest.mark.parametrize(("ranks", "height"), [(2, 510), (8, 759), (64, 1800)])
def test_the_picture_grows_with_the_ranks(tmp_path: Path, ranks: int, height: int) -> None:
    viz.draw(viz_traces.ring(ranks), tmp_path / "ring.png")
    with Image.open(tmp_path / "ring.png") as image:
        assert (image.format, image.size) == ("PNG", (1500, height))


def test_the_same_trace_gives_the_same_bytes() -> None:
    assert render_space_time(viz_traces.ring(3)) == render_space_time(viz_traces.ring(3))


def test_a_message_leads_from_its_sender_down_to_its_receiver() -> None:
    trace = Trace("x", "measured", 2, 1.0, [Message(0, 1, 0, 0, 10, 0.25, 0.75)])
    marks = near(pixels(trace), chunk_colours(1)[0])
    (top, left), (bottom, right) = marks.min(axis=0), marks.max(axis=0)
    axis_left, axis_width = 0.075 * 1500, 0.79 * 1500
    assert (left - axis_left) / axis_width == pytest.approx(0.25, abs=0.01)
    assert (right - axis_left) / axis_width == pytest.approx(0.75, abs=0.01)
    at_left, at_right = marks[marks[:, 1] == left][:, 0].mean(), marks[marks[:, 1] == right][:, 0].mean()
    assert at_left == pytest.approx(top, abs=5) and at_right == pytest.approx(bottom, abs=8)


def test_phases_take_their_share_of_the_width_and_four_steps_are_shown() -> None:
    picture = pixels(viz_traces.training(ranks=1, steps=10))
    columns = {name: len(set(near(picture, colour)[:, 1])) for name, colour in PHASES.items() if name != "reduce"}
    total = sum(columns.values())
    assert total == pytest.approx(0.79 * 1500, rel=0.03)
    for name, share in (("forward", 0.2), ("backward", 0.5), ("sync", 0.2), ("optimizer", 0.1)):
        assert columns[name] / total == pytest.approx(share, abs=0.02)
    runs = np.diff(sorted(set(near(picture, PHASES["sync"])[:, 1])))
    assert np.count_nonzero(runs > 5) == 3


def test_very_many_messages_are_drawn() -> None:
    trace = viz_traces.ring(8)
    many = [message for message in trace.messages for _ in range(200)]
    assert len(render_space_time(replace(trace, messages=many))) > 10_000
