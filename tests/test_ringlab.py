"""``import ringlab``: what the command line gives, as objects."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

import ringlab
from collectives import InputError
from ringlab.cli import app

HERE = """
title = "two ranks here"
[cluster]
preset = "this-machine"
[collective]
name = "all_reduce"
algorithms = ["ring"]
sizes = ["4 KiB"]
"""


def as_json(*arguments: str) -> dict:
    result = CliRunner().invoke(app, [*arguments, "--json", "-"], catch_exceptions=False)
    assert result.exit_code == 0
    return json.loads(result.stdout)


@pytest.mark.parametrize("name", ["star8", "two-racks"])
def test_a_prediction_is_what_the_command_line_writes(name: str):
    assert ringlab.load(name).predict().to_dict() == as_json("predict", name)


def test_overrides_are_those_of_the_command_line():
    found = ringlab.load("star8", "cluster.hosts=3", "collective.sizes=1 KiB").predict()
    assert found.to_dict() == as_json("predict", "star8", "--set", "cluster.hosts=3", "--set", "collective.sizes=1 KiB")
    assert {entry.world_size for entry in found.collectives} == {3}


def test_what_else_there_is_has_the_command_lines_json():
    assert ringlab.check("all_reduce/ring", "1-5").to_dict() == as_json(
        "check", "all_reduce/ring", "--world-sizes", "1-5"
    )
    assert ringlab.hardware("dgx-h100").to_dict() == as_json("hardware", "dgx-h100")
    assert ringlab.hardware().to_dict() == as_json("hardware")
    assert ringlab.list_names().to_dict() == as_json("list")
    kept = [finding.subject for finding in ringlab.doctor().findings]
    assert kept == [finding["subject"] for finding in as_json("doctor")["findings"]]


def test_a_scenario_is_run_compared_and_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    file = tmp_path / "here.toml"
    file.write_text(HERE)
    scenario = ringlab.load(str(file))
    run = scenario.run(timeout=60)
    assert run.trace is not None and run.collectives[0].time_s == run.trace.elapsed
    assert run.to_dict()["kind"] == "measurement" and "what_if" not in run.to_dict()
    compared = scenario.compare(timeout=60)
    beside = compared.collectives[0].time_s
    assert beside.error == pytest.approx((beside.predicted - beside.measured) / beside.measured)
    scenario.write_report(compared, tmp_path / "report.html")
    assert "<table" in (tmp_path / "report.html").read_text()
    drawn = ringlab.animate("star8", tmp_path / "star.png", "ring", "1 KiB")
    assert (drawn.title, Path(drawn.file).is_file()) == ("all_reduce/ring", True)
    scenario.trace().write(tmp_path / "here.trace.json")
    assert ringlab.animate(str(tmp_path / "here.trace.json"), tmp_path / "here.png").title == "all_reduce/ring"


def test_an_answer_is_one_line_and_cannot_be_changed():
    answers = [
        ringlab.predict("star8"),
        ringlab.hardware(),
        ringlab.hardware("dgx-h100"),
        ringlab.list_names(),
        ringlab.check("all_reduce/ring", "1-3"),
    ]
    for answer in answers:
        assert len(repr(answer)) < 120 and "\n" not in repr(answer)
        with pytest.raises(AttributeError):
            answer.kind = "other"  # type: ignore[misc,union-attr]


def test_all_that_is_promised_is_there():
    for name in ringlab.__all__:
        assert getattr(ringlab, name).__doc__, name
    assert {*ringlab.__all__} <= {*dir(ringlab)}
    with pytest.raises(AttributeError, match="no attribute 'prediction'"):
        ringlab.prediction  # noqa: B018


def test_what_cannot_be_is_refused_as_on_the_command_line():
    with pytest.raises(InputError, match="engine 'fast' is not known"):
        ringlab.predict("star8", engine="fast")
    with pytest.raises(InputError, match="so nothing of it can be measured"):
        ringlab.compare("star8")
    with pytest.raises(InputError, match="did you mean hosts"):
        ringlab.load("star8", "cluster.host=3")


@pytest.mark.parametrize("scenario", [8, None, Path("star8")])
def test_what_names_no_scenario_is_refused(scenario: object) -> None:
    with pytest.raises(InputError, match=r"scenario is .*; give the name of one"):
        ringlab.predict(scenario)
