"""The command line as users see it: output, exit status and error messages."""

import json
import re
import shlex
from importlib.metadata import version
from pathlib import Path

import pytest
import real_workers
import scenario_texts
import typer
from scenario_texts import ASKS, changed

import simcomm
from collectives.errors import InputWarning
from realcomm.emulation.network import Ability
from realcomm.launching.failures import RankFailed
from realcomm.launching.launcher import launch
from ringlab import cli
from ringlab.shared.failures import _say, exit_with_a_line

STAR = 'title = "four hosts"\n' + scenario_texts.STAR + ASKS
HERE = 'title = "two ranks here"\n' + scenario_texts.HERE + changed(ASKS, ', "1 MiB"', "")


ONE_ON_DIGITS = (
    "run TWO --set training.gradient_sync=ring --set training.dataset=digits --set \"training.data_folder='.'\""
)


@pytest.fixture
def star(tmp_path) -> Path:
    file = tmp_path / "star.toml"
    file.write_text(STAR)
    return file


@pytest.fixture
def here(tmp_path) -> Path:
    file = tmp_path / "here.toml"
    file.write_text(HERE)
    return file


def test_version_option_prints_the_version(ringlab):
    assert ringlab("--version") == (0, f"ringlab {version('ringlab')}\n", "")


def test_help_names_every_command(ringlab):
    status, out, _ = ringlab("--help")
    assert status == 0 and all(command in out for command in cli.COMMANDS)


@pytest.mark.parametrize("command", cli.COMMANDS)
def test_help_of_a_command_contains_its_listed_description(ringlab, command):
    status, out, _ = ringlab(command, "--help")
    description = cli.describe_command(command)
    assert status == 0 and description and description in " ".join(re.sub("[│|]", " ", out).split())


def test_predict_json_has_the_times_of_the_simulator(ringlab, star):
    status, out, err = ringlab("predict", star, "--json", "-")
    answer = json.loads(out)
    assert (status, err, answer["kind"]) == (0, "", "prediction")
    assert [(e["algorithm"], e["bytes"]) for e in answer["collectives"]] == [
        ("naive", 65536), ("ring", 65536), ("naive", 1 << 20), ("ring", 1 << 20),
    ]  # fmt: skip
    elapsed = simcomm.run("all_reduce/ring", simcomm.star(4, "10 Gbit/s", "5 us"), 1 << 20).elapsed
    last = answer["collectives"][-1]
    assert last["time_s"] == float(f"{elapsed:.7g}")
    assert last["algbw_GBps"] == pytest.approx((1 << 20) / elapsed / 1e9)
    assert last["busbw_GBps"] == pytest.approx(last["algbw_GBps"] * 2 * 3 / 4)


def test_predict_shows_a_table_and_writes_its_files(ringlab, star, tmp_path):
    status, out, _ = ringlab("predict", star, "--json", tmp_path / "a.json", "--trace", tmp_path / "a.trace.json")
    assert status == 0 and out.splitlines()[0] == "four hosts"
    assert "busbw" in out and "(GB/s)" in out
    assert "ring takes" in out and "What limits ring, 1 MiB" in " ".join(out.splitlines()[-3:])
    assert json.loads((tmp_path / "a.json").read_text())["kind"] == "prediction"
    assert ringlab("animate", tmp_path / "a.trace.json", "-o", tmp_path / "a.png")[0] == 0
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def test_animate_names_its_default_algorithm(ringlab, star, tmp_path):
    status, _, err = ringlab("animate", star, "-o", tmp_path / "a.png")
    assert (status, err) == (0, "drawing ring, the last of naive, ring; select another with --algorithm NAME\n")
    assert ringlab("animate", star, "-o", tmp_path / "a.png", "--algorithm", "naive")[::2] == (0, "")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("predict nowhere.toml", "nowhere.toml"),
        ("predict HERE", "this machine is not calibrated for this scenario; run `ringlab calibrate "),
        ("predict STAR --calibration none.json", "none.json: no such file"),
        ("predict STAR --trace -", "- (standard output) is only supported by --json"),
        ("run HERE --set cluster.world_size=2000", "2000 ranks are too many for the"),
        ("compare STAR", "it cannot be measured here; use `ringlab predict`, --emulate"),
        ("compare HERE --emulates", "No such option"),
        ("compare HERE --emulate --thorough", "--thorough requires a scenario of this machine; remove --thorough"),
        ("run HERE --backend mpi", "backend 'mpi'"),
        ("run HERE --log-dir HERE", "here.toml is not a directory"),
        ("run HERE --log-dir logs", "--log-dir requires a scenario with a [training] table"),
        ("run HERE --weights w.pt", "--weights requires a scenario with a [training] table"),
        ("run HERE --weights HERE", "here.toml is an input of this command"),
        ("run TWO --weights w.pt", "requires a single gradient sync, but the scenario trains with naive"),
        (f"{ONE_ON_DIGITS} --weights w.pt", "weights_file w.pt is inside data_folder .; write the weights"),
        ("animate STAR -o a.bmp", "a.bmp"),
        ("animate STAR -o a.png --algorithm star", "'star'"),
        ("plot cluster STAR --algorithm ring -o a.png", "the plot 'cluster' has no algorithm; remove algorithm"),
        ("bench --collective broadcast --op max", "broadcast does not reduce; remove op"),
        ("check nothing.py", "nothing.py: no such file"),
        ("check all_reduce/star", "unknown algorithm 'all_reduce/star'"),
        ("check all_reduce/ring --ranks 1-", "'1-' is not a number or a range"),
        ("predict", "Missing argument"),
        ("predictt", "No such command"),
    ],
)
def test_invalid_input_prints_one_line_with_status_2(ringlab, star, here, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.iterdir())
    named = {"STAR": star, "HERE": here, "TWO": "resnet34-cifar10"}
    status, out, err = ringlab(*(named.get(word, word) for word in shlex.split(arguments)))
    assert (status, out) == (2, "") and message in err and "Traceback" not in err
    if err.startswith("ringlab: "):
        assert len(err.splitlines()) == 1
    assert sorted(tmp_path.iterdir()) == before


def test_check_proves_an_algorithm_and_compares_its_costs(ringlab):
    status, out, _ = ringlab("check", "all_reduce/naive", "--ranks", "2,4,8")
    (row,) = [line.split() for line in out.splitlines() if line.split()[:1] == ["8"]]
    assert status == 0 and row == ["8", "14", "(3)", "4.67", "14", "7", "(1.75)", "4"]
    assert "RIGHT  all_reduce/naive: proved for 2, 4, 8 ranks." in out
    status, out, _ = ringlab("check", "all_reduce/unchunked_ring", "--ranks", "1-9")
    assert status == 0
    assert "From 4 ranks on, its busiest rank sends at least twice the minimum" in out


def test_check_locates_a_deadlock_with_status_1(ringlab, tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(
        "from collectives import algorithm, recv, send\n"
        "@algorithm('all_reduce')\n"
        "def stuck(rank, world_size):\n"
        "    if world_size > 1:\n"
        "        yield recv((rank - 1) % world_size, 0)\n"
        "        yield send((rank + 1) % world_size, 0)\n"
    )
    status, out, _ = ringlab("check", file)
    assert status == 1 and "WRONG" in out and "deadlock" in out
    assert "rank 0 in step 0 (line 5 of mine.py) waits for rank 1" in out
    scenario = tmp_path / "s.toml"
    scenario.write_text(STAR.replace('"naive", "ring"', '"mine.py:stuck"'))
    status, _, err = ringlab("predict", scenario)
    assert status == 2 and "deadlock" in err


@pytest.mark.usefixtures("brief_calibration")
def test_compare_shows_predicted_and_measured_times(ringlab, here, tmp_path):
    status, out, _ = ringlab("compare", here, "--json", tmp_path / "c.json", "--report", tmp_path / "c.html")
    assert status == 0 and "error" in out
    answer = json.loads((tmp_path / "c.json").read_text())
    assert answer["kind"] == "comparison"
    for entry in answer["collectives"]:
        beside = entry["time_s"]
        error = (beside["predicted"] - beside["measured"]) / beside["measured"]
        assert beside["error"] == pytest.approx(error, rel=1e-5, abs=1e-6)
    assert "<table" in (tmp_path / "c.html").read_text()
    assert ringlab("predict", here)[0] == 0  # the calibration is kept


def test_run_names_a_killed_rank_and_exits_with_status_1(ringlab, here, monkeypatch):
    def launch_a_rank_that_dies(worker, world_size, *arguments, timeout, **options):
        return launch(real_workers.fail_on, world_size, 1, "SIGKILL", timeout=timeout)

    monkeypatch.setattr("realcomm.measuring.collective_run.launch", launch_a_rank_that_dies)
    status, out, err = ringlab("run", here, "--timeout", "60")
    assert (status, out) == (1, "") and "rank 1" in err and "SIGKILL" in err


@pytest.mark.parametrize(
    ("failed_rank", "lost_peer", "is_said"), [(1, False, True), (1, True, False), (0, False, False)]
)
def test_rank_reports_only_its_own_failure_under_torchrun(failed_rank, lost_peer, is_said, capsys, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    error = RankFailed(failed_rank, f"rank {failed_rank} failed")
    error.lost_peer = lost_peer
    _say(error)
    assert capsys.readouterr().err == ("ringlab: rank 1 failed\n" if is_said else "")


def test_run_warns_when_the_cluster_is_not_this_machine(ringlab, star):
    status, out, err = ringlab("run", star, "--json", "-", "--set", 'collective.sizes=["1 KiB"]')
    assert status == 0 and "is not this machine" in err
    assert json.loads(out)["emulated"] is False


def test_doctor_reports_findings_and_list_shows_names(ringlab, monkeypatch):
    monkeypatch.setattr("ringlab.commands.doctor.try_emulation", lambda: Ability("as root", 1e9, True))
    status, out, _ = ringlab("doctor", "--json", "-")
    findings = {finding["subject"]: finding["works"] for finding in json.loads(out)["findings"]}
    assert status == 0 and findings["Python"] and findings["gloo (CPU ranks)"]
    status, out, _ = ringlab("list")
    assert status == 0 and all(name in out for name in ("all_reduce/ring", "this-machine", "quickstart"))


def test_unexpected_end_of_file_is_reported_as_an_error(capsys):
    app = typer.Typer(add_completion=False)

    @app.command()
    def read() -> None:
        raise EOFError("Ran out of input")

    with pytest.MonkeyPatch.context() as patched, pytest.raises(SystemExit) as ended:
        patched.setattr("sys.argv", ["ringlab"])
        exit_with_a_line(app)
    message = capsys.readouterr().err
    assert ended.value.code == 1 and "EOFError: Ran out of input" in message and "Abort" not in message


def test_rank_1_prints_output_when_world_size_is_not_set(ringlab, monkeypatch):
    """Other ranks are only silent if a launcher started several ranks."""
    monkeypatch.setenv("RANK", "1")
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    assert "all_reduce/ring" in ringlab("list")[1]


def test_deprecation_is_shown_as_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    cli.show_warning(InputWarning("nic = 12.5 has no unit"), InputWarning, "scenario.py", 7)
    cli.show_warning(UserWarning("odd"), UserWarning, "scenario.py", 7)
    lines = capsys.readouterr().err.splitlines()
    assert lines[:2] == ["ringlab: nic = 12.5 has no unit", "scenario.py:7: UserWarning: odd"]
