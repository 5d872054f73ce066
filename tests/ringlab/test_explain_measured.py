"""``ringlab explain --measured``: measured tables next to predictions, and the verdict."""

import json
from pathlib import Path

import pytest
from command_line import Ringlab
from nccl_tests_output import table
from pasted_files import NCCL_LOG, write

from benchmarks.studies.measured_healthy import GROUPS, judge_healthy
from collectives.errors import InputError
from ringlab.commands.predicting.explain_measured import explain_measured
from scenarios import load
from simcomm.nccl.descriptions import describe_system
from simcomm.nccl.predict import interval_log_limits, predict_seconds

SIZES = [1 << shift for shift in range(10, 31)]
MACHINE = {"nodes": 1, "gpus": 8, "gpu": "A100 SXM", "nccl": "2.28", "procs": "single"}
NETWORK = {"net": "ib", "nic": 200}


def timed(collective: str = "all_reduce", factor: float = 1.0, start: int = 0, **machine: object) -> str:
    """Return a table with the predicted times. From ``start`` bytes on, they are multiplied by a factor."""
    system = describe_system("table", {**MACHINE, **machine})
    seconds = predict_seconds(system, collective, SIZES)
    rows = [(size, 1e6 * each * (factor if size >= start else 1.0)) for size, each in zip(SIZES, seconds, strict=True)]
    return table(rows, collective, system.nodes, 8, 8 if system.procs == "single" else 1)


def test_table_that_matches_the_prediction_is_as_expected(tmp_path: Path) -> None:
    answer = explain_measured(write(tmp_path, "a.txt", timed()))
    assert (answer.verdict, answer.sentence) == (
        "as expected",
        "as expected: 1 times the predicted time, 21 of 21 sizes in the interval",
    )
    (judged,) = answer.tables
    assert [row.bytes for row in judged.rows] == SIZES
    assert all(row.measured == pytest.approx(row.predicted, rel=1e-2) for row in judged.rows)
    assert answer.notes == ("guess: link = nvswitch, as is usual for A100 SXM",)


@pytest.mark.parametrize(
    ("factor", "start", "verdict", "sentence"),
    [
        (4.0, 1 << 20, "slower", "4 times slower than expected from 1 MiB on"),
        (5.5, 0, "slower", "5.5 times slower than expected at all sizes"),
        (0.2, 1 << 25, "faster", "5 times faster than expected from 32 MiB on"),
        (1.3, 0, "as expected", "as expected: 1.3 times the predicted time, 21 of 21 sizes in the interval"),
    ],
)
def test_verdict_states_the_slowdown_and_its_first_size(
    tmp_path: Path, factor: float, start: int, verdict: str, sentence: str
) -> None:
    answer = explain_measured(write(tmp_path, "a.txt", timed(factor=factor, start=start)))
    assert (answer.verdict, answer.sentence) == (verdict, sentence)


def test_verdict_names_slow_small_sizes(tmp_path: Path) -> None:
    system = describe_system("table", MACHINE)
    times = predict_seconds(system, "all_reduce", SIZES)
    rows = [(size, 1e6 * each * (3 if size <= 1 << 15 else 1)) for size, each in zip(SIZES, times, strict=True)]
    answer = explain_measured(write(tmp_path, "a.txt", table(rows)))
    assert answer.sentence == "3 times slower than expected up to 32 KiB"


def test_single_size_outside_the_interval_is_expected(tmp_path: Path) -> None:
    lines = timed().splitlines()
    at = next(at for at, line in enumerate(lines) if line.split()[:1] == [str(1 << 20)])
    slow = timed(factor=9.0).splitlines()[at]
    answer = explain_measured(write(tmp_path, "a.txt", "\n".join([*lines[:at], slow, *lines[at + 1 :]])))
    assert (answer.verdict, "20 of 21 sizes" in answer.sentence) == ("as expected", True)


def test_measured_size_has_the_interval_of_the_model(tmp_path: Path) -> None:
    (judged,) = explain_measured(write(tmp_path, "a.txt", timed())).tables
    system = describe_system("table", MACHINE)
    below, above = interval_log_limits(system, SIZES)
    for row, down, up in zip(judged.rows, below, above, strict=True):
        assert (row.low, row.high) == (
            pytest.approx(row.predicted * 2.718281828**-down, rel=1e-6),
            pytest.approx(row.predicted * 2.718281828**up, rel=1e-6),
        )


def test_json_has_the_verdict_and_a_row_for_each_size(ringlab: Ringlab, tmp_path: Path) -> None:
    path = write(tmp_path, "a.txt", timed(factor=4.0, start=1 << 20))
    done = ringlab("explain", "--measured", path, "--json", "-")
    answer = json.loads(done.out)
    assert (answer["kind"], answer["verdict"]) == ("measured", "slower")
    assert [row["bytes"] for row in answer["rows"]] == SIZES
    assert all(row["low"] < row["predicted"] < row["high"] for row in answer["rows"])
    assert (answer["tables"][0]["sentence"], answer["skipped"]) == (answer["sentence"], [])


def test_output_names_verdict_guesses_and_skipped_rows(ringlab: Ringlab, tmp_path: Path) -> None:
    lines = timed(factor=4.0, start=1 << 20).splitlines()
    at = next(at for at, line in enumerate(lines) if line.split()[:1] == ["1024"])
    path = write(tmp_path, "a.txt", "\n".join([*lines[:at], lines[at][:60], *lines[at + 1 :]]))
    done = ringlab("explain", "--measured", path)
    assert done.status == 0
    assert "a.txt: 4 times slower than expected from 1 MiB on" in done.out
    assert "note: guess: link = nvswitch, as is usual for A100 SXM" in done.out
    assert f"a.txt:{at + 1}: " in done.out.replace("\n", "") and "skipped: " in done.out


def test_several_collectives_have_a_verdict_each(tmp_path: Path) -> None:
    text = timed() + timed("all_gather", factor=4.0) + timed("reduce_scatter")
    answer = explain_measured(write(tmp_path, "sweep.txt", text))
    assert [(judged.collective, judged.verdict) for judged in answer.tables] == [
        ("all_reduce", "as expected"),
        ("all_gather", "slower"),
        ("reduce_scatter", "as expected"),
    ]
    assert answer.sentence == "1 of 3 tables slower; all_gather: 4 times slower than expected at all sizes"


def test_table_without_a_device_list_requires_only_the_gpu(tmp_path: Path) -> None:
    path = write(tmp_path, "a.txt", "\n".join(line for line in timed().splitlines() if "Rank" not in line))
    answer = explain_measured(path)
    assert (answer.verdict, answer.sentence) == (
        "unknown",
        "unknown, as no file names the GPU; pass for example --set 'gpu=A100 SXM'",
    )
    assert answer.tables[0].rows[0].predicted is None
    named = explain_measured(path, keys=["gpu=A100 SXM"])
    assert named.verdict == "as expected"
    assert "guess: 1 host with 8 GPUs; no device is listed" in named.notes


def test_unknown_host_network_is_reported_with_advice(tmp_path: Path) -> None:
    path = write(tmp_path, "a.txt", timed(nodes=2, procs="per_gpu", **NETWORK))
    assert "the hosts' network is unknown; pass for example --set net=ib" in explain_measured(path).sentence
    assert explain_measured(path, keys=["net=ib", "nic=200 GB/s"]).verdict == "as expected"


def test_log_in_the_file_describes_the_network(tmp_path: Path) -> None:
    machine = {**NETWORK, "nic": 100.0, "nic_guess": True, "gpu": "H100 SXM", "procs": "per_gpu", "nodes": 2}
    text = NCCL_LOG.format(gdr="/GDRDMA") + timed(**machine).replace("A100-SXM4-80GB", "H100 80GB HBM3")
    answer = explain_measured(write(tmp_path, "a.txt", text))
    assert answer.verdict == "as expected"
    assert "guess: nic = 100.0 GB/s, 2 NICs, as usual with H100 SXM" in answer.notes


def test_gpu_outside_the_catalog_is_unknown(tmp_path: Path) -> None:
    text = timed().replace("A100-SXM4-80GB", "Vega 10 XT")
    assert "the GPU 'NVIDIA Vega 10 XT' is not in the catalog" in explain_measured(write(tmp_path, "a", text)).sentence


def test_explain_uses_scenario_ranks_without_a_device_list(tmp_path: Path) -> None:
    path = write(tmp_path, "a.txt", "\n".join(line for line in timed("broadcast").splitlines() if "Rank" not in line))
    assert "the number of ranks is unknown" in explain_measured(path).sentence
    scenario = load("dgx-h100", ["cluster.preset=dgx-a100"])
    answer = explain_measured(path, scenario)
    assert [(judged.nodes, judged.gpus, judged.verdict) for judged in answer.tables] == [(1, 8, "as expected")]


@pytest.mark.parametrize(
    ("scenario", "keys", "message"),
    [
        ("two-p5", (), "measured on 'NVIDIA A100-SXM4-80GB', but two-p5.toml has H100 SXM"),
        ("star8", (), '--measured requires a scenario with transport = "nccl"'),
        (None, ("nodes=3",), "--set: nodes = 3, but line 6 begins a run of 8 ranks"),
        (None, ("gpu=Nothing",), "gpu = 'Nothing' is not in the catalog"),
        (None, ("color=red",), "--set: unknown key 'color'"),
    ],
)
def test_explain_rejects_another_machine(
    tmp_path: Path, scenario: str | None, keys: tuple[str, ...], message: str
) -> None:
    path = write(tmp_path, "a.txt", timed())
    if "Nothing" in str(keys):
        assert message in explain_measured(path, keys=keys).sentence
        return
    with pytest.raises(InputError, match=message.replace("(", r"\(")):
        explain_measured(path, load(scenario) if scenario else None, keys)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "nothing to explain; pass a scenario, or --measured FILE"),
        (("--measured", "no.txt"), "no.txt: no such file"),
        (("two-p5", "-o", "a.png"), "-o was removed; the answer lists the rings"),
    ],
)
def test_explain_rejects_contradicting_options(ringlab: Ringlab, arguments: tuple[str, ...], message: str) -> None:
    done = ringlab("explain", *arguments)
    assert (done.status, message in done.err) == (2, True)


def test_held_out_healthy_tables_are_as_expected() -> None:
    verdicts = [judged.verdict for judged in judge_healthy(GROUPS[2:])]
    assert verdicts.count("as expected") >= 0.9 * len(verdicts) > 15
