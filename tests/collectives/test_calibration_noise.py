"""Detect and report noise in calibrations."""

from dataclasses import replace
from math import hypot
from pathlib import Path
from unittest.mock import Mock

import pytest

from collectives.errors import RunFailed
from collectives.input_files import inputs_protected
from collectives.records.calibration import Calibration, ComputePoint, FittedLine, MachineLoad, cache_file
from collectives.training.workload import ComputePhases
from realcomm.calibration.load import Counters, LoadWatch
from ringlab.session import Session, find_cached
from scenarios import load
from simcomm.uncertainty import MODEL, combine, disagreement, drift, find_noise

LINE = FittedLine(1e-5, 1e-9, 0.5)  # the quality of the fit is not noise
POINT = ComputePoint("resnet18", "digits", 32, 2, 1, ComputePhases(0.035, 0.1, 0.01), 0.1)
ONE = Calibration(2, 1, one_way=LINE, both_ways=LINE, reduction=LINE, compute=[POINT])


def with_parts(*factors: float) -> Calibration:
    points = [replace(POINT, phases=ComputePhases(0.035 * k, 0.1 * k, 0.01 * k)) for k in factors]
    return replace(ONE, parts=[replace(ONE, compute=[point]) for point in points])


BUSY = replace(ONE, load=MachineLoad(0.34, 0.0, ["cc1plus"]))


@pytest.mark.parametrize(
    ("calibration", "noise"),
    [
        (ONE, []),
        (with_parts(1.0, 1.02, 0.98, 1.0), []),
        (
            with_parts(1.0, 1.5, 0.7, 1.2),
            ["its repetitions disagree by 35%, and by 35% for backward of resnet18 in 2 processes"],
        ),
        (BUSY, ["other processes took 34% of this machine's cores (cc1plus)"]),
    ],
)
def test_find_noise_reports_disagreement_and_other_processes(calibration: Calibration, noise: list[str]) -> None:
    assert find_noise(calibration) == noise


@pytest.mark.parametrize(
    ("alone", "together", "noise"),
    [
        (0.035, 0.171, ["forward of resnet18 takes 171 ms in 2 parallel processes, 35 ms in one"]),
        (0.035, 0.02, ["forward of resnet18 takes 20 ms in 2 parallel processes, 35 ms in one"]),
        (0.035, 0.07, []),
        (0.035, 0.034, []),
    ],
)
def test_implausible_phase_times_are_reported_as_noise(alone: float, together: float, noise: list[str]) -> None:
    points = [
        replace(POINT, processes=processes, phases=ComputePhases(forward, 0.1, 0.01))
        for processes, forward in ((1, alone), (2, together))
    ]
    assert find_noise(replace(ONE, compute=points)) == noise
    others = [replace(points[0], threads=2), points[1]]
    assert find_noise(replace(ONE, compute=others)) == []


def test_noisy_calibration_is_saved_only_if_accepted(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("realcomm.calibrate", lambda *_, **__: BUSY)
    with pytest.raises(RunFailed, match=r"took 34% .* \(cc1plus\)\. Nothing was saved; .* --accept-noise"):
        Session().calibrate(2)
    assert [*tmp_path.rglob("*.json")] == []
    assert Session().calibrate(2, accept_noise=True)[1]
    assert len([*tmp_path.rglob("*.json")]) == 1


def test_calibrate_overwrites_a_cached_calibration_file(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("realcomm.calibrate", lambda *_, **__: ONE)
    ONE.write(cache_file(2))
    with inputs_protected():  # as a command that finds the cached calibration insufficient
        find_cached(2, "gloo")
        assert Session().calibrate(2)[1] == str(cache_file(2))


def test_reported_cpu_load_excludes_ringlabs_own_ranks(monkeypatch):
    counters = [Counters(1.0, 0.0, 10.0, {1: ("init", 0.05), 7: ("make", 0.1)})]
    counters.append(Counters(4.0, 0.2, 20.0, {1: ("init", 0.06), 7: ("make", 1.1), 8: ("new", 0.9)}))
    monkeypatch.setattr("realcomm.calibration.load.read_counters", lambda: counters.pop(0))
    monkeypatch.setattr("realcomm.calibration.load.process_time", lambda: 0.0)
    watch = LoadWatch()
    watch.stop()
    load = watch.share_of_others(ranks_cpu_s=2.0)
    assert load == MachineLoad(others=pytest.approx(0.1), steal=pytest.approx(0.02), names=["make"])


def test_uncertainty_grows_with_disagreement_and_age():
    assert disagreement([1.0, 1.0, 1.0]) == 0.0
    assert disagreement([1.0]) is disagreement([1.0, None, 1.0]) is None
    assert drift(0.0) == 0.0 < drift(10.0) < drift(60.0) < drift(1200.0) < drift(86400.0) < 0.6
    assert combine(0.0, 0.0) == MODEL and combine(0.12, 0.0) == pytest.approx(0.13) and combine(None, 10.0) is None
    assert combine(0.12, 60.0) == pytest.approx(hypot(0.13, 0.29))


def test_overlap_scenario_needs_a_calibration_with_overlap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here.toml").write_text('[cluster]\npreset = "this-machine"\n[training]\ngradient_sync = "ring"\n')
    store = {"found": ONE}
    monkeypatch.setattr(Session, "find_calibration", lambda *arguments: store["found"])

    def is_enough(*changes: str) -> bool:
        return Session().is_calibrated(load(tmp_path / "here.toml", changes))

    assert is_enough() and not is_enough("training.stem=cifar")
    overlaps = 'training.gradient_sync={name = "ring", overlap = true}'
    assert not is_enough(overlaps)
    store["found"] = replace(ONE, overlap=[Mock(model="resnet18", dataset="digits", batch_size=32)])
    assert is_enough(overlaps)


def test_noisy_calibration_is_redone_by_the_next_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "here.toml").write_text(
        '[cluster]\npreset = "this-machine"\n'
        '[collective]\nname = "all_reduce"\nalgorithms = ["ring"]\nsizes = ["1 KiB"]\n'
    )
    scenario, sizes = load(tmp_path / "here.toml"), list[bool]()

    def calibrate(*arguments: object, all_sizes: bool, **options: object) -> Calibration:
        sizes.append(all_sizes)
        return ONE if len(sizes) > 1 else BUSY

    monkeypatch.setattr("realcomm.calibrate", calibrate)
    saved: list[Calibration | None] = [None]
    monkeypatch.setattr(Session, "find_calibration", lambda *arguments: saved[-1])
    for expected in (BUSY, ONE, ONE):
        saved.append(Session().find_or_calibrate(scenario))
        assert saved[-1] == expected
    assert sizes == [False, False], "the quiet calibration is saved, for the scenario's sizes only"
