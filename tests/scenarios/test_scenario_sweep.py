"""Check ``ringlab predict --sweep`` as a table, as JSON and as a picture, against ``--set`` with each value."""

import json
from dataclasses import replace
from pathlib import Path

import joblib
import pytest

import ringlab as package
from collectives import InputError
from ringlab.commands.predicting import predict_sweep as sweeping
from ringlab.commands.predicting.predict_sweep import parse_sweep, predict_sweep
from ringlab.shared.answer import shorten
from ringlab.shared.conclusions import describe_crossovers
from viz.curves import SweepLine, sweep_figure

ONE_SIZE = "collective.sizes=1 MiB"


def test_sweep_matches_single_predictions_with_set(ringlab, tmp_path: Path):
    picture, file = tmp_path / "sweep.svg", tmp_path / "sweep.json"
    options = ["--sweep", "cluster.hosts=2..6", "--set", ONE_SIZE, "--json", file, "--plot", picture]
    status, out, err = ringlab("predict", "star8", *options)
    assert (status, err) == (0, "")
    answer = json.loads(file.read_text())
    assert (answer["kind"], answer["key"]) == ("sweep", "cluster.hosts")
    assert [point["value"] for point in answer["points"]] == ["2", "4", "6"]
    for point in answer["points"]:
        alone = shorten(package.load("star8", ONE_SIZE, f"cluster.hosts={point['value']}").predict().to_dict())
        assert (point["collectives"], point["training"]) == (alone["collectives"], alone["training"])
    (row,) = [line.split() for line in out.splitlines() if line.split()[:1] == ["4"]]
    times = [entry["time_s"] for entry in answer["points"][1]["collectives"]]
    assert float(row[1]) == pytest.approx(1e3 * times[0], rel=6e-3)
    assert "cluster.hosts" in out and " ring " in out and picture.read_text().startswith("<?xml")


def test_sweep_value_fits_on_one_line(ringlab, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "80")
    done = ringlab("predict", "star8", "--sweep", "cluster.bandwidth=1 Gbit/s,100 Gbit/s")
    tables = [line for line in done.out.splitlines() if line.startswith((" cluster.bandwidth ", " 100 Gbit/s "))]
    assert len(tables) == 8 and max(map(len, done.out.splitlines())) <= 80


def test_sweep_has_a_curve_over_all_values_for_each_algorithm():
    answer = predict_sweep("star8", "cluster.bandwidth=1..4Gbit/s", ONE_SIZE)
    lines = answer.lines()
    assert [*lines][:2] == ["naive, 1 MiB", "ring, 1 MiB"]
    for line in lines.values():
        assert [*line] == ["1 Gbit/s", "2 Gbit/s", "4 Gbit/s"]
        assert line["1 Gbit/s"] > line["2 Gbit/s"] > line["4 Gbit/s"]
    assert repr(answer) == "<SweepAnswer of 'Eight hosts on a 10 Gbit/s switch': 3 points>"
    with joblib.parallel_config("threading", n_jobs=2):
        assert predict_sweep("star8", "cluster.bandwidth=1..4Gbit/s", ONE_SIZE) == answer


TREE_AND_RING = 'collective.algorithms=["ring", "binomial"]'


def test_sweep_of_sizes_names_the_fastest_algorithm_per_size(ringlab, tmp_path: Path):
    options = ["--set", TREE_AND_RING, "--sweep", "collective.sizes=1..1024KiB*4", "--plot", tmp_path / "sizes.svg"]
    status, out, err = ringlab("predict", "star8", *options)
    assert (status, err) == (0, "")
    assert "Eight hosts on a 10 Gbit/s switch: fastest is binomial up to 16 KiB, ring from 64 KiB on." in out
    answer = predict_sweep("star8", "collective.sizes=1..1024KiB*4", TREE_AND_RING)
    assert {name: [*line] for name, line in answer.lines().items()} == {
        name: ["1 KiB", "4 KiB", "16 KiB", "64 KiB", "256 KiB", "1024 KiB"] for name in ("ring", "binomial")
    }
    axes = sweep_figure("t", answer.key, [SweepLine("ring", ["1 KiB"], [0.1])]).axes[0]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("collective.sizes", "time (log)")


@pytest.mark.parametrize(
    ("times", "sentences"),
    [
        ([(1.0, 2.0), (1.0, 1.002), (1.001, 1.0), (1.0, 1.003), (2.0, 1.0)], ["a up to 4 B, b from 5 B on"]),
        ([(1.0, 2.0), (2.0, 1.0), (1.0, 2.0)], ["a up to 1 B, b at 2 B, a from 3 B on"]),
        ([(1.0, 1.001), (1.001, 1.0)], []),
        ([(None, None), (1.0, 2.0), (None, 1.0)], ["a up to 2 B, b from 3 B on"]),
    ],
)
def test_crossovers_ignore_nearly_equal_times(times: list[tuple[float | None, ...]], sentences: list[str]):
    row = package.load("star8", ONE_SIZE).predict().collectives[0]
    entries = [
        replace(row, bytes=size, algorithm=name, time_s=seconds)
        for size, pair in enumerate(times, 1)
        for name, seconds in zip("ab", pair, strict=True)
    ]
    assert describe_crossovers("here", entries) == [f"here: fastest is {text}." for text in sentences]


def test_interrupted_sweep_keeps_finished_values(monkeypatch: pytest.MonkeyPatch, ringlab):
    real, tasks = sweeping._predict, list[object]()

    def interrupted(*task):
        tasks.append(task)
        if len(tasks) == 3:
            raise KeyboardInterrupt
        return real(*task)

    monkeypatch.setattr(sweeping, "_predict", interrupted)
    status, out, _ = ringlab("predict", "star8", "--sweep", "cluster.hosts=2..32", "--set", ONE_SIZE, "--json", "-")
    content = json.loads(out)
    assert status == 130 and content["interrupted"] and [point["value"] for point in content["points"]] == ["2", "4"]


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("a.b=1..100Gbit/s", [f"{number} Gbit/s" for number in (1, 2, 4, 8, 16, 32, 64, 100)]),
        ("a.b = 2 .. 64 * 4", ["2", "8", "32", "64"]),
        ("a.b=0.5..2 us", ["0.5 us", "1 us", "2 us"]),
        ("a.b=10,25,100Gbit/s", ["10 Gbit/s", "25 Gbit/s", "100 Gbit/s"]),
    ],
)
def test_sweep_range_doubles_up_to_its_end(text: str, values: list[str]):
    assert parse_sweep(text) == ("a.b", values)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--sweep", "cluster.hosts"], "--sweep cluster.hosts: write section.key=values"),
        (["--what-if", "=2..4"], "--what-if =2..4: write section.key=values"),
        (["--sweep", "cluster.hosts=4..2"], "a range must increase from a positive number"),
        (["--sweep", "cluster.hosts=2..4*1"], "a factor greater than 1"),
        (["--sweep", "cluster.hosts=1..1e9*1.001"], "more than 6,000 values"),
        (["--plot", "a.png"], "--plot a.png requires --sweep or --devices"),
        (["--sweep", "cluster.hosts=2..4", "--trace", "a.trace.json"], "cannot be combined with --sweep"),
        (["--sweep", "cluster.hosts=2..4", "--plot", "a.bmp"], "a.bmp"),
    ],
)
def test_invalid_sweep_is_rejected(ringlab, options: list[str], message: str):
    status, out, err = ringlab("predict", "star8", *options)
    assert (status, out) == (2, "") and message in err and len(err.splitlines()) == 1


def test_sweep_curve_omits_runs_that_hang():
    figure = sweep_figure("t", "k", [SweepLine("ring", ["1", "2", "3"], [0.1, None, 0.3])])
    (line,) = [line for line in figure.axes[0].lines if line.get_gid() == "ring"]
    assert list(line.get_xdata()) == [0, 2] and list(line.get_ydata()) == [0.1, 0.3]
    with pytest.raises(InputError, match="must have at least one time"):
        sweep_figure("t", "k", [])
