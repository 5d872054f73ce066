"""``ringlab explain --measured``: measured tables next to predictions, and the verdict."""

import json
from math import exp
from pathlib import Path

import pytest
from command_line import Ringlab
from nccl_tests_output import table
from pasted_files import NCCL_LOG, write

from benchmarks.studies.measured_healthy import GROUPS, judge_healthy
from ringlab.commands.predicting.explain_measured import explain_measured
from scenarios import load
from simcomm.nccl.descriptions import describe_system
from simcomm.nccl.predict import interval_log_limits, predict_seconds

SIZES = [1 << shift for shift in range(10, 31)]
MACHINE = {"nodes": 1, "gpus": 8, "gpu": "A100 SXM", "nccl": "2.28", "procs": "single"}
NETWORK = {"net": "ib", "nic": 200}


def timed(collective: str = "all_reduce", factor: float = 1.0, start: int = 0, end: int = 1 << 60, **machine) -> str:
    """Return a table with the predicted times. From ``start`` to ``end`` bytes, they are multiplied by a factor."""
    system = describe_system("table", {**MACHINE, **machine})
    seconds = predict_seconds(system, collective, SIZES) * 1e6
    rows = [(size, each * (factor if start <= size <= end else 1.0)) for size, each in zip(SIZES, seconds, strict=True)]
    return table(rows, collective, system.nodes, 8, 8 if system.procs == "single" else 1)


def without_devices(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if "Rank" not in line)


def test_measurement_close_to_the_prediction_is_as_expected(tmp_path: Path) -> None:
    answer = explain_measured(write(tmp_path, "a.txt", timed()))
    assert answer.verdict == "as expected"
    assert answer.sentence == "as expected: 1 times the predicted time, 21 of 21 sizes in the 80 % interval"
    assert answer.notes == ("guess: link = nvswitch, as is usual for A100 SXM",)
    (judged,) = answer.tables
    assert [row.bytes for row in judged.rows] == SIZES
    limits = interval_log_limits(describe_system("table", MACHINE), SIZES)
    for row, below, above in zip(judged.rows, *limits, strict=True):
        assert row.measured == pytest.approx(row.predicted, rel=1e-2)
        assert (row.low, row.high) == pytest.approx((row.predicted * exp(-below), row.predicted * exp(above)), rel=1e-6)


@pytest.mark.parametrize(
    ("changes", "verdict", "sentence"),
    [
        ({"factor": 4.0, "start": 1 << 20}, "slower", "4 times slower than expected from 1 MiB on"),
        ({"factor": 3.0, "end": 1 << 15}, "slower", "3 times slower than expected up to 32 KiB"),
        ({"factor": 0.2, "start": 1 << 25}, "faster", "5 times faster than expected from 32 MiB on"),
        ({"factor": 1.3}, "as expected",
         "as expected: 1.3 times the predicted time, 21 of 21 sizes in the 80 % interval"),
        ({"factor": 9.0, "start": 1 << 20, "end": 1 << 20}, "as expected",
         "as expected: 1 times the predicted time, 20 of 21 sizes in the 80 % interval"),
    ],
)  # fmt: skip
def test_verdict_states_the_slowdown_and_the_slow_sizes(tmp_path: Path, changes, verdict: str, sentence: str) -> None:
    answer = explain_measured(write(tmp_path, "a.txt", timed(**changes)))
    assert (answer.verdict, answer.sentence) == (verdict, sentence)


def test_explain_prints_verdict_guesses_and_skipped_rows(ringlab: Ringlab, tmp_path: Path) -> None:
    lines = timed(factor=4.0, start=1 << 20).splitlines()
    at = next(at for at, line in enumerate(lines) if line.split()[:1] == ["1024"])
    lines[at] = lines[at][:60]
    done = ringlab("explain", "--measured", write(tmp_path, "a.txt", "\n".join(lines)), "--json", tmp_path / "a.json")
    assert done.status == 0
    assert "a.txt: 4 times slower than expected from 1 MiB on" in done.out
    assert "note: guess: link = nvswitch, as is usual for A100 SXM" in done.out
    assert f"a.txt:{at + 1}: " in done.out.replace("\n", "") and "skipped: " in done.out
    answer = json.loads((tmp_path / "a.json").read_text())
    assert (answer["kind"], answer["verdict"]) == ("measured", "slower")
    assert [row["bytes"] for row in answer["rows"]] == SIZES[1:] and len(answer["skipped"]) == 1
    assert all(row["low"] < row["predicted"] < row["high"] for row in answer["rows"])
    assert answer["tables"][0]["sentence"] == answer["sentence"]


def test_several_collectives_have_a_verdict_each(tmp_path: Path) -> None:
    text = timed() + timed("all_gather", factor=4.0) + timed("reduce_scatter")
    answer = explain_measured(write(tmp_path, "sweep.txt", text))
    verdicts = {judged.collective: judged.verdict for judged in answer.tables}
    assert verdicts == {"all_reduce": "as expected", "all_gather": "slower", "reduce_scatter": "as expected"}
    assert answer.sentence == "slower in 1 of 3 tables; all_gather: 4 times slower than expected at all sizes"


def test_nccl_table_without_a_device_list_needs_the_gpu_type(tmp_path: Path) -> None:
    path = write(tmp_path, "a.txt", without_devices(timed()))
    answer = explain_measured(path)
    assert answer.sentence == "unknown, as no file names the GPU; pass for example --set 'gpu=A100 SXM'"
    assert answer.verdict == "unknown" and answer.tables[0].rows[0].predicted is None
    named = explain_measured(path, keys=["gpu=A100 SXM"])
    assert named.verdict == "as expected"
    assert "guess: 1 host with 8 GPUs; no device is listed" in named.notes


def test_unknown_host_network_is_reported_with_advice(tmp_path: Path) -> None:
    path = write(tmp_path, "a.txt", timed(nodes=2, procs="per_gpu", **NETWORK))
    assert "the hosts' network is unknown; pass for example --set net=ib" in explain_measured(path).sentence
    assert explain_measured(path, keys=["net=ib", "nic=200 GB/s"]).verdict == "as expected"


def test_nccl_log_in_the_file_describes_the_network(tmp_path: Path) -> None:
    machine = {**NETWORK, "nic": 100.0, "nic_guess": True, "gpu": "H100 SXM", "procs": "per_gpu", "nodes": 2}
    text = NCCL_LOG.format(gdr="/GDRDMA") + timed(**machine).replace("A100-SXM4-80GB", "H100 80GB HBM3")
    answer = explain_measured(write(tmp_path, "a.txt", text))
    assert answer.verdict == "as expected"
    assert "guess: nic = 100.0 GB/s, 2 NICs, as usual with H100 SXM" in answer.notes


def test_explain_uses_scenario_ranks_without_a_device_list(tmp_path: Path) -> None:
    path = write(tmp_path, "a.txt", without_devices(timed("broadcast")))
    assert "the number of ranks is unknown" in explain_measured(path).sentence
    answer = explain_measured(path, load("dgx-h100", ["cluster.preset=dgx-a100"]))
    assert [(judged.nodes, judged.gpus, judged.verdict) for judged in answer.tables] == [(1, 8, "as expected")]


def test_gpu_outside_the_catalog_gives_no_verdict(tmp_path: Path) -> None:
    listed = write(tmp_path, "a.txt", timed().replace("A100-SXM4-80GB", "Vega 10 XT"))
    assert "the GPU 'NVIDIA Vega 10 XT' is not in the catalog" in explain_measured(listed).sentence
    path = write(tmp_path, "b.txt", timed())
    assert "gpu = 'Nothing' is not in the catalog" in explain_measured(path, keys=["gpu=Nothing"]).sentence


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("two-p5", "--measured", "a.txt"), "measured on 'NVIDIA A100-SXM4-80GB', but two-p5.toml has H100 SXM"),
        (
            ("two-p5", "--measured", "a.txt", "--set", "cluster.preset=dgx-a100"),
            "has 2 hosts with 8 GPUs each; pass --set cluster.nodes=1",
        ),
        (
            ("two-p5", "--measured", "a.txt", "--set", "cluster.preset=dgx-a100", "--set", "cluster.gpus_per_node=4"),
            "has 2 hosts with 4 GPUs each; describe the measured machine, or omit the scenario",
        ),
        (("star8", "--measured", "a.txt"), '--measured requires a scenario with transport = "nccl"'),
        (("--measured", "a.txt", "--set", "nodes=3"), "--set: nodes = 3, but the run in line 6 has 8 ranks"),
        (("--measured", "a.txt", "--set", "color=red"), "--set: unknown key 'color'"),
        ((), "nothing to explain; pass a scenario, or --measured FILE"),
        (("two-p5", "-o", "a.png"), "-o was removed; the output lists the rings"),
    ],
)
def test_explain_rejects_a_contradicting_scenario_or_option(
    ringlab: Ringlab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path, "a.txt", timed())
    done = ringlab("explain", *arguments)
    assert (done.status, message in " ".join(done.err.split())) == (2, True), done.err


def test_held_out_healthy_tables_are_as_expected() -> None:
    verdicts = [judged.verdict for judged in judge_healthy(GROUPS[2:])]
    assert verdicts.count("as expected") >= 0.9 * len(verdicts) > 15
