"""Static plots agree with the prediction or trace: waterfall, scaling curve, critical path, space-time."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from io import BytesIO
from itertools import pairwise
from math import inf
from pathlib import Path
from re import findall

import numpy as np
import pytest
import viz_traces
from matplotlib.figure import Figure
from matplotlib.text import Text
from PIL import Image
from typer.testing import CliRunner

import ringlab
from collectives import InputError, Message, Span, Trace
from collectives.errors import TooLarge
from collectives.records.waits import divide_path
from ringlab.cli import app
from ringlab.pictures.plots import scaling_curves, waterfall
from ringlab.shared.figures import SideBySide
from ringlab.shared.progress import Progress
from simcomm.simulate import simulate
from viz.accuracy import Dots, accuracy_figure
from viz.curves import Curve, SweepLine, scaling_figure, sweep_figure
from viz.fronts import Priced, money_figure
from viz.path_strip import path_figure
from viz.space_time import space_time_figure
from viz.style import PHASES, chunk_colors, render_figure, rgb
from viz.waterfall import Bar, waterfall_figure

FORMULA = "$\\frac{$"


def words(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.findobj(Text) if isinstance(text, Text)]


def widths(figure: Figure) -> list[tuple[str | None, float]]:
    return [(bar.get_gid(), bar.get_width()) for axes in figure.axes for bar in axes.patches]  # type: ignore[attr-defined]


def test_waterfall_shows_the_phases_of_a_predicted_step() -> None:
    answer = ringlab.load("faults", "collective.sizes=64 KiB").predict()
    figure = waterfall_figure(answer.title, *waterfall(answer))
    steps = [figures.training[0] for figures in (answer.own, *answer.what_ifs)]
    phases = "forward", "backward", "sync", "optimizer"
    drawn = [(phase, getattr(step, f"{phase}_s")) for step in steps if step.step_s is not None for phase in phases]
    assert widths(figure) == [(phase, pytest.approx(seconds)) for phase, seconds in drawn]
    assert "never ends" in words(figure), "rank 2 fails in the last what-if"
    assert {"248 ms", "811 ms"} <= set(words(figure))


def test_waterfall_without_training_shows_largest_collectives() -> None:
    answer = ringlab.load("two-racks").predict()
    subtitle, bars = waterfall(answer)
    largest = [row for row in answer.collectives if row.bytes == max(row.bytes for row in answer.collectives)]
    assert [(bar.name, bar.seconds) for bar in bars] == [(row.algorithm, row.time_s) for row in largest]
    assert subtitle.startswith("all_reduce of 8 MiB")


def test_scaling_curve_omits_world_sizes_too_large_to_simulate(monkeypatch: pytest.MonkeyPatch) -> None:
    notes = list[str]()

    def simulate_few(model, work, most=4, **options):
        if model.cluster.world_size > most:
            raise TooLarge(f"{model.cluster.world_size} ranks are too many")
        return simulate(model, work, **options)

    monkeypatch.setattr(Progress, "note", lambda self, text: notes.append(text))
    monkeypatch.setattr("ringlab.shared.workload.simulate", simulate_few)
    curves = scaling_curves(ringlab.load("star8"), None, progress=Progress())
    assert [list(curve.world_sizes) for curve in curves] == [[2, 3, 4]] * 2
    assert notes == ["Not simulated: 6 ranks are too many; 8 ranks are too many."]
    monkeypatch.setattr("ringlab.shared.workload.simulate", partial(simulate_few, most=0))
    with pytest.raises(TooLarge, match="2 ranks are too many"):
        scaling_curves(ringlab.load("star8"), None)


def test_scaling_curve_agrees_with_predictions() -> None:
    scenario = ringlab.load("star8")
    curves = scaling_curves(scenario, None)
    assert [curve.name for curve in curves] == ["naive", "ring"]
    four = ringlab.load("star8", "cluster.hosts=4", "collective.sizes=1 KiB").predict().training
    for curve, figures in zip(curves, four, strict=True):
        at = list(curve.world_sizes).index(4)
        assert curve.samples_per_s[at] == pytest.approx(figures.samples_per_s)
        assert curve.efficiency[at] == pytest.approx(figures.scaling_efficiency)
    lines = {line.get_gid(): line for line in scaling_figure("", "", curves).axes[0].lines}
    np.testing.assert_allclose(lines["ring"].get_ydata(), np.array(curves[1].samples_per_s, float))
    ideal = 32 / 0.110  # samples a second of one rank: 25 + 78 + 7 ms
    np.testing.assert_allclose(lines["ideal"].get_ydata(), ideal * np.array(curves[1].world_sizes))


def test_scaling_plot_merges_equal_curves_and_has_one_ideal_line() -> None:
    alike = [Curve(name, [1, 8], [100.0, 400.0], [1.0, 0.5]) for name in ("float32", "fp16")]
    axes = scaling_figure("", "", alike).axes[0]
    assert [line.get_gid() for line in axes.lines] == ["ideal", "float32, fp16"]
    assert [text.get_text() for text in axes.texts] == ["100", "ideal", "float32, fp16\n400 (50%) at 8"]
    batches = [Curve(str(batch), [8], [4.0 * batch], [0.5]) for batch in (16, 32)]
    figure = scaling_figure("", "", batches)
    ideal = figure.axes[0].lines[0]
    assert next(text.get_text() for text in figure.axes[0].texts) == "ideal of 32"
    assert (list(ideal.get_xdata()), list(ideal.get_ydata())) == ([1, 8], [32.0, 256.0])


def test_scaling_plot_omits_a_training_that_never_ends() -> None:
    figure = scaling_figure("", "", [Curve("ring", [2, 4], [60.0, None], [0.9, None])])
    assert {line.get_gid(): list(line.get_xdata()) for line in figure.axes[0].lines}["ring"] == [2]
    with pytest.raises(InputError, match="not 1 with 0 points"):
        scaling_figure("", "", [Curve("ring", [4], [None], [None])])


@pytest.mark.parametrize("trace", [viz_traces.ring(8), viz_traces.naive(4), viz_traces.this_machine(2)])
def test_segments_of_the_critical_path_add_up_to_its_run_time(trace: Trace) -> None:
    parts = divide_path(trace)
    assert parts[0].begin == 0
    assert parts[-1].end == pytest.approx(trace.elapsed)
    assert all(before.end == after.begin for before, after in pairwise(parts))
    by_row: dict[str | None, float] = dict(widths(path_figure(trace)))
    assert sum(by_row.values()) == pytest.approx(trace.elapsed)


def test_critical_path_is_split_into_latency_links_and_waiting() -> None:
    trace = viz_traces.two_racks()
    late = Message(3, 4, 0, 0, 1_000_000, 0.002, 0.011, ("h3", "s0", "s1", "h4"))
    trace = Trace(
        **{**vars(trace), "messages": [late], "spans": [Span(4, "reduce", 0, 0.011, 0.012)], "elapsed": 0.012}
    )
    parts = [(part.kind, part.name, pytest.approx(part.end - part.begin)) for part in divide_path(trace)]
    latency = 3 * viz_traces.LATENCY
    assert parts == [
        ("waiting", "", 0.002),
        ("latency", "", latency),
        ("bandwidth", "s0 → s1", 0.009 - latency),  # the trunk has a tenth of the others' bandwidth
        ("computing", "reduce", 0.001),
    ]
    assert {"bandwidth of s0 → s1", "latency", "reduce", "waiting"} <= {name for name, _ in widths(path_figure(trace))}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["piechart", "star8", "-o", "x.png"], "unknown plot 'piechart'; use one of step, scaling, path"),
        (["step", "star8", "-o", "x.gif"], "a plot is written as .png or .svg or .pdf, not '.gif'"),
        (["scaling", "two-racks", "-o", "x.png"], "a plot of the scaling requires a [training] table"),
    ],
)
def test_invalid_plot_argument_is_rejected(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["plot", *arguments])
    assert isinstance(result.exception, InputError)
    assert message in " ".join(str(result.exception).split())
    assert not list(tmp_path.iterdir())


def test_plot_draws_a_trace_from_a_file(tmp_path: Path) -> None:
    viz_traces.ring(4).write(tmp_path / "ring.trace.json")
    result = CliRunner().invoke(app, ["plot", "path", str(tmp_path / "ring.trace.json"), "-o", f"{tmp_path}/path.svg"])
    assert result.exit_code == 0, result.output
    assert b"<svg" in (tmp_path / "path.svg").read_bytes()
    with pytest.raises(InputError, match="a trace only supports the plot 'path', not 'step'"):
        ringlab.plot(tmp_path / "ring.trace.json", "step", tmp_path / "step.png")


def test_waterfall_with_too_many_bars_is_rejected() -> None:
    with pytest.raises(InputError, match="a waterfall needs 1 to 40 bars, not 41"):
        waterfall_figure("", "", [Bar("here", "ring", {"sync": 1.0}, 1.0)] * 41)


def test_gallery_shows_all_pictures_of_the_makefile() -> None:
    root = Path(__file__).parents[2]
    made = set(findall(r"(?:-o|--plot) docs/(pictures/\S+)", (root / "Makefile").read_text()))
    shown = set(findall(r"\]\(\.\./(pictures/[^)]+)\)", (root / "docs/how-to/pictures.md").read_text()))
    assert made == shown
    assert {f"pictures/{file.name}" for file in (root / "docs/pictures").iterdir()} == made


def test_waterfall_draws_measured_after_predicted_bars() -> None:
    predicted = ringlab.load("star8", "collective.sizes=1 KiB").predict()
    step = predicted.training[0]
    times = {key: value for key, value in vars(step).items() if key.endswith("_s") and "per" not in key}
    both = replace(
        step, **{key: SideBySide(value, 2 * value, -0.5) for key, value in times.items() if value is not None}
    )
    _, bars = waterfall(replace(predicted, training=(both,), what_ifs=()))
    assert [(bar.name, bar.seconds) for bar in bars] == [
        (f"{step.gradient_sync}, predicted", step.step_s),
        (f"{step.gradient_sync}, measured", 2 * step.step_s),
    ]
    assert bars[1].parts["sync"] == 2 * step.sync_s


@pytest.mark.parametrize("draw", [path_figure, space_time_figure])
def test_names_of_a_trace_in_a_plot_are_not_rendered_as_math(draw: Callable[[Trace], Figure]) -> None:
    trace = replace(viz_traces.ring(2), title=FORMULA, spans=[Span(0, FORMULA, 0, 0.0, 1e-4)])
    assert named(draw(trace)) >= 1


def test_accuracy_plot_legend_fits_its_figure() -> None:
    families = [f"network, up to {rate} GB/s a node" for rate in range(9)]
    dots = [Dots(panel, family, [1.0], [1.0]) for panel in ("easy", "hard") for family in families]
    figure = accuracy_figure("", "", dots)
    (legend,) = figure.legends
    assert len(legend.get_texts()) == 9
    assert legend.get_window_extent().width <= figure.bbox.width


def test_names_in_figures_are_not_rendered_as_math() -> None:
    bars = [Bar(FORMULA, FORMULA, {FORMULA: 1.0}, 1.0), Bar("c", FORMULA, {}, None)]
    assert named(waterfall_figure(FORMULA, FORMULA, bars)) == 4
    assert named(scaling_figure(FORMULA, FORMULA, [Curve(FORMULA, [2], [1.0], [0.5])])) == 3
    assert named(accuracy_figure(FORMULA, FORMULA, [Dots(FORMULA, FORMULA, [1.0], [1.0])])) == 4
    assert named(sweep_figure(FORMULA, FORMULA, [SweepLine(FORMULA, [FORMULA], [1.0])])) == 5


def named(figure: Figure) -> int:
    """Return how many texts contain the formula. Assert that none of them is parsed as a formula."""
    render_figure(figure)
    texts = [text for text in figure.findobj(Text) if isinstance(text, Text) and FORMULA in text.get_text()]
    assert not any(text.get_parse_math() for text in texts)
    return len(texts)


def pixels(trace: Trace) -> np.ndarray:
    with Image.open(BytesIO(render_figure(space_time_figure(trace)))) as image:
        return np.asarray(image.convert("RGB")).astype(int)


def near(picture: np.ndarray, color: str) -> np.ndarray:
    """Return the rows and columns of a color's pixels, shape [pixels, 2], without the legend in the right margin."""
    wanted = np.array([round(255 * part) for part in rgb(color)])
    return np.argwhere(np.abs(picture[:, :1295] - wanted).max(axis=2) < 4)


def test_space_time_line_connects_the_ranks_of_a_message() -> None:
    trace = Trace("x", "measured", 2, 1.0, [Message(0, 1, 0, 0, 10, 0.25, 0.75)])
    marks = near(pixels(trace), chunk_colors(1)[0])
    (top, left), (bottom, right) = marks.min(axis=0), marks.max(axis=0)
    axis_left, axis_width = 0.075 * 1500, 0.79 * 1500
    assert (left - axis_left) / axis_width == pytest.approx(0.25, abs=0.01)
    assert (right - axis_left) / axis_width == pytest.approx(0.75, abs=0.01)
    at_left, at_right = marks[marks[:, 1] == left][:, 0].mean(), marks[marks[:, 1] == right][:, 0].mean()
    assert at_left == pytest.approx(top, abs=5) and at_right == pytest.approx(bottom, abs=8)


def test_space_time_plot_shows_the_phases_of_four_steps() -> None:
    picture = pixels(viz_traces.training(ranks=1, steps=10))
    columns = {name: len(set(near(picture, color)[:, 1])) for name, color in PHASES.items() if name != "reduce"}
    total = sum(columns.values())
    assert total == pytest.approx(0.79 * 1500, rel=0.03)
    for name, share in (("forward", 0.2), ("backward", 0.5), ("sync", 0.2), ("optimizer", 0.1)):
        assert columns[name] / total == pytest.approx(share, abs=0.02)
    runs = np.diff(sorted(set(near(picture, PHASES["sync"])[:, 1])))
    assert np.count_nonzero(runs > 5) == 3


@pytest.mark.parametrize("rates", [[8.0, 16.0], [210.0, 230.0], [3.0, 3000.0], [54.8], [1.8e5, 1.8e5]])
def test_figure_axes_have_units_and_ticks_around_the_data(rates: list[float]) -> None:
    count, labels = len(rates), ("throughput of all ranks in samples/s (log)", "cost in dollars (log)", "time (log)")
    scaling = scaling_figure("", "", [Curve("ring", [8, 16][:count], rates, [1.0, 0.9][:count])]).axes[0]
    sweep = sweep_figure("", "collective.sizes", [SweepLine("ring", ["1 KiB", "64 MiB"][:count], rates)]).axes[0]
    plan = money_figure("", "", [Priced("x", "V100", (8, 9, 10), (rate,) * 3, True) for rate in rates], (inf, inf))
    for axes, label in zip((scaling, *plan.axes, sweep), labels, strict=True):
        for axis in (axes.yaxis, axes.xaxis) if axes is not sweep else (axes.yaxis,):
            (low, high), (left, right) = axis.get_data_interval(), axis.get_view_interval()
            ticks = [tick for tick in axis.get_majorticklocs() if left <= tick <= right]
            assert min(ticks) <= low and max(ticks) >= high and len(ticks) >= 2
        assert axes.get_ylabel() == label and axes.get_xlabel()
        assert axes.yaxis.get_tightbbox(None).x0 > 0
    (empty,) = money_figure("", "", [], (inf, 5.0)).axes
    assert len(empty.get_xticks()) >= 2 and len(empty.get_yticks()) >= 2
    assert "e+" not in "".join(text.get_text() for text in plan.axes[0].get_yticklabels())
    assert sweep.yaxis.get_major_formatter()(2e-5, 0) == "20 us"
