"""``python -m benchmarks.accuracy --here``: the errors of predictions of emulated clusters, and its output."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from command_line import Ringlab

from benchmarks.accuracy import __main__ as program
from benchmarks.accuracy import emulated_rows, here
from benchmarks.accuracy.emulated_rows import EmulatedRow, EmulatedRows, summarize_errors
from benchmarks.accuracy.here import AccuracyHere, accuracy_here, pair_before
from collectives.call import make_call
from collectives.errors import RunFailed
from collectives.records.calibration import CrowdRound, MachineLoad, PairProbes
from realcomm.calibration.pair_calibration import from_pair
from scenarios import load
from simcomm.cluster.pair_fit import fit_pair

ROOT = Path(__file__).parents[2]

ROWS = tuple(
    EmulatedRow("star4", name, 4, nbytes, predicted, measured)
    for name, nbytes, predicted, measured in [
        ("ring", 4096, 1.0, 2.0), ("ring", 1 << 20, 1.1, 1.0), ("naive", 1 << 20, 0.98, 1.0),
        ("naive", 4096, None, 1.0),
    ]
)  # fmt: skip

PAIR = PairProbes(6.25e6, 1500, 4096, [], [], [], [], [], 0, 0, 0.0, 0, [])


def test_accuracy_errors_are_relative_to_measured_times():
    answer = AccuracyHere(EmulatedRows(ROWS, {}, 1.0))
    assert [row.error for row in ROWS] == pytest.approx([-0.5, 0.1, -0.02, None])
    everything = answer.views["all"]["all rows"]
    assert (everything.rows, everything.median) == (3, pytest.approx(0.1)) and everything.worst == pytest.approx(0.5)
    assert answer.views["algorithm"]["naive"].rows == 1 and answer.views["size"]["1 MiB"].within == 1.0
    rows = [replace(ROWS[0], predicted_s=2.0 * (1 + share)) for share in (0.1, 0.2, 0.3, 0.4)]
    assert summarize_errors(rows).p90 == pytest.approx(0.37)


def test_interval_on_emulated_hosts_is_wider_for_small_buffers():
    rounds = [CrowdRound(8, step=1e-4, further=5e-5, waking=2e-3) for _ in range(8)]
    arrived = [(nbytes, nbytes / PAIR.goodput) for nbytes in (1 << 20, 1 << 24)]
    pair = replace(
        PAIR, chains=[(64, 1, 3e-4), (64, 5, 9e-4)], exchange=[(64, 2e-4)], arrived=arrived, crowds=rounds, cores=2,
        send_done=arrived, in_flight=100_000, at_once=[(1, 1e-5), (12, 1e-4)], reduction=[(4096, 1e-6)],
        one_way=[(64, 2e-4)],
    )  # fmt: skip
    scenario = load("emulated/star4")
    calls = [make_call("all_reduce/naive", 4, nbytes) for nbytes in (4096, 8 << 20)]
    calibration = from_pair(pair, 2)
    small, large = here._stated(scenario, calls, calibration, here._predict(scenario, calls, calibration))
    assert small is not None and small > 0.08 and large == pytest.approx(0.05, rel=0.05)


def test_local_accuracy_is_written_and_plotted(accuracy_of: Ringlab, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    answer = AccuracyHere(EmulatedRows(ROWS, {"star8": "TCP on h0 timed out 3 times"}, 12.0))
    monkeypatch.setattr(program, "accuracy_here", lambda names, **options: answer)
    done = accuracy_of("--here", "--plot", tmp_path / "here.png", "--json", tmp_path / "here.json")
    assert done.status == 0 and "star8 was not measured: TCP on h0 timed out" in done.out
    assert "4 rows in 12 s" in done.out and (tmp_path / "here.png").stat().st_size > 1000
    written = json.loads((tmp_path / "here.json").read_text())
    assert written["rows"][0]["error"] == -0.5 and written["errors"]["all"]["all rows"]["rows"] == 3
    assert f"The picture: {tmp_path / 'here.png'}" in done.out


def test_busy_machine_is_reported_and_its_rows_are_marked(accuracy_of: Ringlab, monkeypatch: pytest.MonkeyPatch):
    loads = {"star4": MachineLoad(0.31, 0.0, ["cc1plus"]), "star8": MachineLoad(0.01, 0.0)}
    rows = (*(replace(row, is_busy=True) for row in ROWS), replace(ROWS[0], scenario="star8"))
    answer = AccuracyHere(EmulatedRows(rows, {}, 12.0, loads=loads))
    monkeypatch.setattr(program, "accuracy_here", lambda names, **options: answer)
    message = "busy during star4: other processes took 31% of this machine's cores (cc1plus). 4 of 5 rows are marked"
    assert message in accuracy_of("--here").out
    assert [row["is_busy"] for row in answer.to_dict()["rows"]] == [True] * 4 + [False]
    assert replace(answer.found, loads={"star8": loads["star8"]}).busy == ""


def test_tcp_model_can_be_fitted_to_committed_measurements():
    results = json.loads((ROOT / "benchmarks" / "results" / "accuracy_here.json").read_text())
    for pair in results["pairs"]:
        again = pair_before(results, "star8", pair["bandwidth"])
        assert fit_pair(again, 8).tcp is not None and len(again.crowds) > len(pair["crowds"])


def test_options_here_and_held_out_exclude_each_other(accuracy_of: Ringlab):
    assert "--here can only be combined with --only" in accuracy_of("--here", "--held-out").err
    assert "--only requires --here" in accuracy_of("--only", "star8").err


def test_accuracy_on_this_machine_requires_emulation(monkeypatch: pytest.MonkeyPatch):
    def refuse(*arguments: object, **options: object) -> None:
        raise RunFailed("clusters cannot be emulated here: ip is missing")

    monkeypatch.setattr(emulated_rows, "calibrate_pair", refuse)
    with pytest.raises(RunFailed, match="ip is missing"):
        accuracy_here(["emulated/star4"])
