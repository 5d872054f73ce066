"""Check ``[faults]`` in scenario files, and the output of ``predict`` about faults."""

import json
from pathlib import Path

import pytest
from command_line import Ringlab
from scenario_texts import check_refused, write

from collectives.records.trace import Trace
from ringlab.commands.predicting.prediction import predict
from ringlab.shared.conclusions import effect
from scenarios import load
from simcomm.model.faults import Faults, Jitter, LinkFault, RankFault
from simcomm.repetition import repeat

STAR = """
[cluster]
topology = "star"
hosts = 4
bandwidth = "1 GB/s"
latency = "1 us"

[collective]
name = "all_reduce"
algorithms = ["ring"]
sizes = ["1 MiB"]
"""
FAULTS = """
[faults]
seed = 3
repetitions = 20
messages = { distribution = "exponential", mean = "50 us" }
compute = { distribution = "uniform", mean = 0.1 }

[[faults.rank]]
rank = 1
slowdown = 2

[[faults.link]]
between = ["h3", "s0"]
share = 0.5
at = "1 ms"
lasting = "2 ms"
"""
THIN = "between=['h0', 's0']"
HALF = f"{THIN}, share=0.5"


def test_faults_table_is_read(tmp_path: Path):
    scenario = load(write(tmp_path, STAR + FAULTS))
    faults = scenario.faults
    assert faults.ranks == (RankFault(1, 2.0),)
    assert faults.links == (LinkFault(("h3", "s0"), 0.5, 1e-3, 2e-3),)
    assert faults.messages == Jitter("exponential", 50e-6)
    assert faults.compute == Jitter("uniform", 0.1)
    assert (faults.seed, faults.repetitions) == (3, 20)


WRONG = {
    "faults.rank=[{rank=4}]": "faults.rank.0: rank 4 has no fault; set slowdown = 2",
    "faults.rank=[{rank=4, slowdown=2}]": "faults.rank.0: rank 4 does not exist; ranks are 0 to 3",
    "faults.link=[{between=['h0', 'h1'], share=0}]": "faults.link.0: no link between h0 and h1",
    f"faults.link=[{{{THIN}}}]": "faults.link.0.share is missing: the remaining share",
    f"what_if=[{{title='a', faults={{link=[{{{HALF}, every='1 ms'}}]}}}}]": "write a [[faults.link]] table for each",
    f"faults.link=[{{{HALF}, lasting='0 ms'}}]": "faults.link.0.lasting = ",
    "faults.messages={distribution='gauss'}": "distribution: unknown distribution 'gauss'; choose one of uniform",
    "faults.messages={distribution='uniform', mean='1 us', deviation='1 us'}": "faults.messages.deviation was removed",
}


@pytest.mark.parametrize("override", WRONG)
def test_invalid_faults_key_is_rejected(tmp_path: Path, override: str):
    check_refused(tmp_path, STAR, WRONG[override], override)


def test_prediction_under_random_faults_has_median_p95_and_worst(tmp_path: Path):
    (entry,) = predict(load(write(tmp_path, STAR + FAULTS))).to_dict()["collectives"]
    about = entry["faults"]
    assert about["repetitions"] == 20
    assert about["never_ended"] == 0
    assert about["median_s"] < about["p95_s"] < about["worst_s"]
    assert entry["time_s"] <= about["median_s"]
    assert about["critical_path_s"] == pytest.approx(about["median_s"], rel=0.1)


def test_training_waits_are_reported_per_step(tmp_path: Path):
    """If a rank is 1 s late in each step, its neighbor waits 1 s per step. The critical path covers one step."""
    training = '[training]\ngradient_sync = "ring"\n[training.compute]\n'
    phases = 'forward = "1 s"\nbackward = "1 s"\noptimizer = "0 s"\n'
    slow = "[[faults.rank]]\nrank = 1\nslowdown = 1.5\n"
    text = STAR[: STAR.index("[collective]")] + training + phases + slow
    (step,) = predict(load(write(tmp_path, text))).to_dict()["training"]
    about = step["faults"]
    assert about["critical_path_s"] == pytest.approx(step["step_s"], rel=1e-6)
    assert about["waited_for"][0]["rank"] == 1
    assert [by["s"] for by in about["waited_for"][0]["by"]] == pytest.approx([1.0, 1.0], rel=1e-6)


def test_large_run_under_faults_reports_times_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    scenario = load(write(tmp_path, STAR + FAULTS))
    monkeypatch.setattr("simcomm.performance_models.options.SIMPY_UP_TO", 0)
    (row,) = predict(scenario).to_dict()["collectives"]
    monkeypatch.setattr("ringlab.shared.workload.MOST_RECORDED", 0)
    (entry,) = predict(scenario).to_dict()["collectives"]
    for key, value in entry["faults"].items():
        same = row["faults"][key]
        assert value == (pytest.approx(same, rel=1e-12) if isinstance(same, float) else same), key
    assert entry["faults"].keys() == {"repetitions", "never_ended", "median_s", "p95_s", "worst_s", "computing"}


def test_deterministic_fault_is_simulated_once(tmp_path: Path):
    text = STAR + '[[what_if]]\ntitle = "thin"\n[[what_if.faults.link]]\nbetween = ["h2", "s0"]\nshare = 0.1\n'
    answer = predict(load(write(tmp_path, text))).to_dict()
    (entry,) = answer["what_if"][0]["collectives"]
    assert entry["faults"]["repetitions"] == 1
    assert entry["time_s"] > 5 * answer["collectives"][0]["time_s"]
    assert entry["faults"]["critical_path"][0]["what"] in ("messages 1 to 2", "messages 2 to 3")
    assert "faults" not in answer["collectives"][0]


SLOW_LINK = '[[faults.link]]\nbetween = ["h2", "s0"]\n'
REASONS = {  # faults: the reason for the time
    SLOW_LINK + "share = 0.1": "h2 - s0, which has 0.1 times its bandwidth",
    SLOW_LINK + 'share = 0.1\nat = "1 us"': "h2 - s0, which at times has 0.1 times its bandwidth",
    SLOW_LINK + 'share = 0\nlasting = "1 ms"': "h2 - s0, which at times is down",
    SLOW_LINK + 'share = 0\nat = "10 us"': "never ends, as h2 - s0 is down since 10 us.",
    '[[faults.rank]]\nrank = 2\nfails_at = "1 ms"': "never ends, as rank 2 failed at 1 ms.",
    "[[faults.rank]]\nrank = 1\nslowdown = 2": "reducing takes no time on this transport, so slow ranks do not slow it",
}


@pytest.mark.parametrize("faults", REASONS)
def test_prediction_under_faults_explains_its_time(tmp_path: Path, faults: str):
    answer = predict(load(write(tmp_path, f"{STAR}{faults}\n")))
    line = effect(answer.own)
    assert REASONS[faults] in line
    assert (answer.collectives[0].time_s is None) == ("never ends" in line)


def test_hanging_repetitions_count_as_the_slowest():
    ended = Trace("all_reduce/ring", "predicted", 1, 2.0)
    stuck = Trace("all_reduce/ring", "predicted", 1, 1.0, failed={0: 1.0})
    jittered = Faults(messages=Jitter("uniform", 1.0), repetitions=3)
    for never, figures in ((0, [2.0, 2.0, 2.0]), (1, [2.0, None, None]), (2, [None, None, None])):
        runs = iter([stuck] * never + [ended] * (3 - never))
        _, about = repeat(jittered, STAR, lambda runs=runs, **_: next(runs), lambda trace: trace.elapsed, record=False)
        assert about.distribution is not None
        assert [about.distribution.median_s, about.distribution.p95_s, about.distribution.worst_s] == figures
        assert about.never_ended == never


def test_predict_prints_the_effect_of_faults(tmp_path: Path, ringlab: Ringlab):
    done = ringlab("predict", "faults", "--set", "collective.sizes=16 MiB", "--json", str(tmp_path / "out.json"))
    assert done.status == 0, done.err
    shown = " ".join(done.out.split())
    for words in ("Under faults", "never", "rank 2 failed at 5 ms", "the largest part is backward of rank 5"):
        assert words in shown
    assert json.loads((tmp_path / "out.json").read_text())["what_if"][3]["training"][0]["step_s"] is None


def test_conclusion_omits_small_parts_of_the_critical_path(tmp_path: Path, ringlab: Ringlab):
    for hosts, message in ((8, "the largest part is messages"), (100, "each part of that is below 10%")):
        content = STAR + "[faults.messages]\ndistribution = 'exponential'\nmean = '2 us'\n"
        done = ringlab("predict", write(tmp_path, content), "--set", f"cluster.hosts={hosts}")
        assert done.status == 0 and message in " ".join(done.out.split())


def test_compare_rejects_faults(tmp_path: Path, ringlab: Ringlab):
    text = STAR[STAR.index("[collective]") :] + '[cluster]\npreset = "this-machine"\n[faults.compute]\n'
    done = ringlab("compare", write(tmp_path, text + 'distribution = "uniform"\nmean = 0.1\n'))
    assert done.status == 2
    assert "cannot be reproduced" in done.err


@pytest.mark.parametrize("repetitions", [1, 300])
def test_what_if_does_not_change_the_engine_of_the_prediction(tmp_path: Path, repetitions: int) -> None:
    beside = (
        f"\n[[what_if]]\ntitle = 'noise'\n[what_if.faults]\nrepetitions = {repetitions}\n"
        "messages = { distribution = 'exponential', mean = '1 ns' }\n"
    )
    rows = [predict(load(write(tmp_path, text))).collectives[0] for text in (STAR, STAR + beside)]
    assert len({(row.engine, row.method, row.time_s) for row in rows}) == 1
