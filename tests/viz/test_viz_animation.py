"""The animation as a file and as pixels."""

import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import viz_traces
from command_line import run_python
from PIL import Image, ImageSequence

import viz
from collectives import Message, Trace
from collectives.errors import InputError
from viz.animation.animation import HEIGHT, Animation
from viz.captions import describe_busiest_link, describe_trace, format_clock
from viz.style import chunk_colors, rgb, text_color


def color_at(pixels: np.ndarray, x: float, y: float) -> tuple[int, ...]:
    return tuple(int(value) for value in pixels[HEIGHT - 1 - int(y), int(x)])


def as_pixel(color: str) -> tuple[int, ...]:
    return tuple(round(255 * part) for part in rgb(color))


def test_gif_has_the_requested_frames_and_speed(tmp_path: Path) -> None:
    trace, calls = viz_traces.two_racks(), list[tuple[int, int]]()
    viz.animate(trace, tmp_path / "racks.gif", seconds=1, fps=10, progress=lambda *now: calls.append(now))
    assert calls == [(done, 10) for done in range(1, 11)]
    with Image.open(tmp_path / "racks.gif") as image:
        assert (image.format, image.size, image.info["loop"]) == ("GIF", (720, 480), 0)
        frames = [(np.asarray(frame.convert("RGB")), frame.info["duration"]) for frame in ImageSequence.Iterator(image)]
    assert [duration for _, duration in frames] == [100] * 9 + [2000]
    assert all((frame != other).any() for (frame, _), (other, _) in pairwise(frames))
    drawn = Animation(trace, 10, 10)
    for index, (frame, _) in reversed(list(enumerate(frames))):  # frames do not depend on the order of drawing
        difference = np.abs(frame.astype(int) - drawn.frame(index))
        assert difference.mean() < 0.5
        assert np.count_nonzero(difference.max(axis=2) > 40) < 50


def test_drawing_without_matplotlib_names_the_pip_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    for name, kind in (("ring.gif", "an animation"), ("ring.png", "a picture of messages"), ("a.html", "a report")):
        with pytest.raises(InputError, match=rf"{name}: {kind} requires matplotlib: pip install 'ringlab\[plots\]'"):
            viz.check_file(tmp_path / name, kind)
    assert viz.check_file(tmp_path / "ring.html", "a picture of messages").name == "ring.html"


def test_message_is_drawn_at_its_position_in_its_color() -> None:
    animation = Animation(viz_traces.ring(4), 60, 10)
    moving = animation._motion
    for frame in (3, 17, 44):
        pixels = animation.frame(frame)
        for index in moving.active(frame):
            x, y = moving.position(index, frame)
            wanted = as_pixel(chunk_colors(4)[moving.chunk[index]])
            around = [color_at(pixels, x + dx, y + dy) for dx, dy in ((-7, 0), (7, 0), (0, -7), (0, 7))]
            assert wanted in around


def test_animation_fills_the_progress_bar_and_the_buffers() -> None:
    animation = Animation(viz_traces.ring(4), 20, 10)
    start, end = animation.frame(0), animation.frame(19)
    assert color_at(start, 600, 26) != color_at(end, 600, 26) == as_pixel("#1b2433")
    for color in chunk_colors(4):
        assert np.count_nonzero((end == as_pixel(color)).all(axis=2)) > 4 * 25 * 20


def test_coincident_messages_are_all_visible() -> None:
    messages = [Message(a, 0, 0, a, 1000, 0.0, 1.0, (f"h{a}", "s0", "h0")) for a in (1, 2, 3)]
    trace = Trace("x/y", "predicted", 4, 1.0, messages, links=viz_traces.naive(4).links, hosts=["h0", "h1", "h2", "h3"])
    pixels = Animation(trace, 10, 10).frame(8)
    seen = [np.count_nonzero((pixels == as_pixel(color)).all(axis=2)) for color in chunk_colors(3)]
    assert min(seen) > 100


BARE = [message._replace(route=()) for message in viz_traces.ring(3).messages]
WITHOUT_LINKS = replace(viz_traces.ring(3), kind="measured", messages=BARE, links=[], nodes=[], hosts=[])


@pytest.mark.parametrize(
    "trace", [viz_traces.this_machine(2), viz_traces.this_machine(12), viz_traces.training(), WITHOUT_LINKS]
)
def test_animation_of_every_kind_of_trace_changes_between_frames(trace: Trace) -> None:
    animation = Animation(trace, 8, 8)
    assert (animation.frame(0) != animation.frame(5)).any()


def test_animation_samples_many_messages_and_states_how_many() -> None:
    messages = [Message(a, b, 0, a, 10, 0.0, 1.0) for a in range(40) for b in range(40) if a != b]
    animation = Animation(Trace("all_to_all/direct", "predicted", 40, 1.0, messages), 4, 4)
    animation.frame(1)
    assert animation._speed.get_text() == "showing 256 of 1560 messages in flight"


def test_captions_describe_the_trace_and_its_busiest_link() -> None:
    trace = replace(viz_traces.two_racks(), elapsed=0.01)
    assert describe_busiest_link(trace) == "busiest link: s0 ↔ s1, 80 % of its capacity"
    assert describe_busiest_link(viz_traces.ring(8)).startswith("all 16 links equally busy: 99 %")
    assert describe_busiest_link(viz_traces.this_machine(2)).startswith("busiest link: memory, 100 %")
    assert describe_busiest_link(viz_traces.naive(3)).startswith("busiest link: rank 0 ↔ s0, ")
    parts = ["predicted", "8 ranks", "8 MiB", "112 messages", "links of 10 Gbit/s"]
    assert describe_trace(viz_traces.ring(8)) == "  ·  ".join(parts)


def test_animation_clock_has_a_unit_that_suits_the_total_time() -> None:
    times = (0, 0.0125), (0.5, 1.18), (0.1, 0.9999), (3e-6, 503e-6)
    assert [format_clock(*each) for each in times] == ["0.0 ms", "0.50 s", "0.10 s", "3 us"]


@pytest.mark.parametrize("count", [2, 9, 10, 64, 128])
def test_chunk_colors_differ_and_numbers_are_readable(count: int) -> None:
    colors = chunk_colors(count)
    assert len(set(colors)) == count
    for color in colors:
        light, dark = sorted((0.2126 * r + 0.7152 * g + 0.0722 * b) for r, g, b in (rgb(color), rgb(text_color(color))))
        assert dark - light > 0.25


@pytest.mark.parametrize(
    ("path", "options", "message"),
    [
        ("x.avi", {}, r"x\.avi: an animation is written as \.gif"),
        ("x.mp4", {}, r"x\.mp4: \.mp4 was removed; write a \.gif, and convert it with `ffmpeg"),
        ("x.gif", {"fps": 51}, "fps must be above 0 and at most 50, not 51"),
        ("x.gif", {"seconds": 1000}, "an animation must have 2 to 600 frames, not 12000"),
        ("x.gif", {"seconds": "ten"}, "seconds must be a number, not 'ten'"),
        ("x.gif", {"progress": True}, "progress must be a function of two integers, not True"),
    ],
)
def test_animate_rejects_invalid_arguments(tmp_path: Path, path: str, options: dict[str, float], message: str) -> None:
    with pytest.raises(InputError, match=message):
        viz.animate(viz_traces.ring(2), tmp_path / path, **options)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("trace", "suffix", "message"),
    [
        (
            Trace("all_reduce/ring", "predicted", 1, 0.0),
            "gif",
            "all_reduce/ring: nothing to draw: the trace has no",
        ),
        (replace(viz_traces.ring(2), elapsed=0.0), "png", r"takes 0\.0 seconds"),
        ("all_reduce/ring", "png", "trace must be a Trace, .*, not 'all_reduce/ring'"),
        (viz_traces.ring(2), "htmlx", r"\.html or \.gif or \.png or \.svg or \.pdf or \.perfetto"),
    ],
)
def test_invalid_trace_or_file_suffix_is_rejected(tmp_path: Path, trace: Trace, suffix: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        viz.draw(trace, tmp_path / f"nothing.{suffix}")


def test_viz_import_loads_no_drawing_library() -> None:
    code = (
        "import sys, viz; print(sorted({'matplotlib', 'PIL', 'jinja2', 'networkx'} & set(sys.modules)));"
        "import viz.animation.animation, viz.space_time; print('matplotlib.pyplot' in sys.modules)"
    )
    done = run_python("-c", code)
    assert done.stdout.splitlines() == ["[]", "False"], done.stderr
