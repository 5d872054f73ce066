"""The Python API: its answers match the command line, and its names have documentation."""

import doctest
import inspect
import json
import pydoc
import re
import shlex
import sys
from collections.abc import Callable
from importlib import import_module
from operator import attrgetter
from pathlib import Path

import pytest
from typer.testing import CliRunner

import ringlab
import scenarios
from ringlab.cli import app
from ringlab.pictures.report import write_report
from ringlab.session import Session
from ringlab.shared.answer import shorten

HERE = """
title = "two ranks here"
[cluster]
preset = "this-machine"
[collective]
name = "all_reduce"
algorithms = ["ring"]
sizes = ["4 KiB"]
"""


SLOW = pytest.mark.slow


def as_json(*arguments: str) -> dict:
    result = CliRunner().invoke(app, [*arguments, "--json", "-"], catch_exceptions=False)
    assert result.exit_code == 0
    return json.loads(result.stdout)


ANSWERS = {
    "predict two-racks": lambda: ringlab.load("two-racks").predict(),
    "predict star8 --set cluster.hosts=3 --set 'collective.sizes=1 KiB'": lambda: ringlab.load(
        "star8", "cluster.hosts=3", "collective.sizes=1 KiB"
    ).predict(),
    "check all_reduce/ring --ranks 1-5": lambda: ringlab.check("all_reduce/ring", "1-5"),
    "list": ringlab.list_names,
    "list hardware": ringlab.hardware,
    "list hardware dgx-h100": lambda: ringlab.hardware("dgx-h100"),
}


@pytest.mark.parametrize("command", ANSWERS)
def test_python_answer_matches_the_json_of_the_command(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    answer = ANSWERS[command]()
    assert shorten(answer.to_dict()) == as_json(*shlex.split(command))
    assert len(repr(answer)) < 120 and "\n" not in repr(answer)
    with pytest.raises(AttributeError):
        answer.kind = "other"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a scenario file and an empty calibration cache for all examples."""
    path = tmp_path_factory.mktemp("examples")
    (path / "here.toml").write_text(HERE)
    return path


@pytest.mark.usefixtures("brief_calibration")
@pytest.mark.parametrize(
    "name",
    ["bench", "Scenario.calibrate", *(pytest.param(name, marks=SLOW) for name in ("calibrate", "compare", "run"))],
)
def test_examples_of_functions_run(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch):
    run_examples(attrgetter(name)(ringlab), folder, monkeypatch)


def run_examples(function: Callable, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the examples in a docstring, including those that are skipped elsewhere."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    names, report = dict(sys.modules[function.__module__].__dict__), list[str]()
    text = inspect.getdoc(function).replace("# doctest: +SKIP", "")
    example = doctest.DocTestParser().get_doctest(text, names, function.__name__, None, None)
    assert example.examples
    doctest.DocTestRunner().run(example, out=report.append)
    assert report == []


@pytest.mark.usefixtures("brief_calibration")
def test_python_api_compares_and_animates_a_scenario(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    scenario = ringlab.load(folder / "here.toml")
    run = scenario.run(timeout=60)
    assert run.trace is not None and run.collectives[0].time_s == run.trace.elapsed
    assert run.to_dict()["kind"] == "measurement" and "what_if" not in run.to_dict()
    compared = scenario.compare(timeout=60)
    beside = compared.collectives[0].time_s
    assert beside.error == pytest.approx((beside.predicted - beside.measured) / beside.measured)
    write_report(compared, scenario, tmp_path / "report.html", Session())
    assert "<table" in (tmp_path / "report.html").read_text()
    drawn = ringlab.animate("star8", tmp_path / "star.png", "ring", "1 KiB")
    assert (drawn.title, Path(drawn.file).is_file()) == ("all_reduce/ring", True)
    scenario.trace().write(tmp_path / "here.trace.json")
    assert ringlab.animate(str(tmp_path / "here.trace.json"), tmp_path / "here.png").title == "all_reduce/ring"


@pytest.mark.parametrize("package", ["collectives", "simcomm", "realcomm", "scenarios", "viz", "ringlab"])
def test_each_public_function_has_an_example(package: str):
    module = import_module(package)
    members = {name: getattr(module, name) for name in module.__all__}
    members |= vars(ringlab.Scenario) if package == "ringlab" else {}
    public = {
        name: member for name, member in members.items() if inspect.isfunction(member) and not name.startswith("_")
    }
    assert public
    assert [name for name, function in public.items() if ">>>" not in (function.__doc__ or "")] == []


def test_public_names_exist_with_docstrings():
    for name in ringlab.__all__:
        assert getattr(ringlab, name).__doc__, name
    assert {*ringlab.__all__} <= {*dir(ringlab)}
    with pytest.raises(AttributeError, match="no attribute 'prediction'"):
        ringlab.prediction  # type: ignore[attr-defined]  # noqa: B018


def test_predict_accepts_a_scenario_by_name_path_or_object(tmp_path: Path) -> None:
    file = tmp_path / "star.toml"
    file.write_text(scenarios.shipped()["star8"].read_text())
    shown = repr(ringlab.predict("star8"))
    for scenario in (file, Path("star8"), ringlab.load(file), scenarios.load("star8")):
        assert repr(ringlab.predict(scenario)) == shown


def test_help_of_ringlab_hides_answer_classes() -> None:
    text = pydoc.plain(pydoc.render_doc(ringlab))
    assert re.findall(r"^    class (\w+)", text, re.MULTILINE) == ["BenchOptions", "Scenario"]
    assert "Prediction" in dir(ringlab)
