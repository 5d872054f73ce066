"""``benchmarks.accuracy.one_rank`` predicts ranks that share cores from a profile of one rank."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from unittest.mock import Mock

import pytest
from command_line import Ringlab, in_this_process

import simcomm
from benchmarks.accuracy import one_rank
from benchmarks.accuracy.emulated_rows import EmulatedRow, EmulatedRows, compare_each
from benchmarks.accuracy.one_rank import computing_of
from collectives.errors import InputError, RunFailed
from collectives.records.calibration import PairProbes
from collectives.records.environment import cores, threads_per_rank
from collectives.records.model_profile import Layer, Measured, ModelProfile
from collectives.training.workload import Training
from realcomm.training.models import build_model
from ringlab.shared.failures import exit_with_a_line
from ringlab.shared.progress import Progress
from scenarios import LoadedScenario, load
from simcomm.cluster.calibrated import as_emulated

SCENARIO = Path(__file__).parents[2] / "examples" / "emulated_hosts.toml"
PARAMETERS = (1_000_000, 115_946)
RANK = threads_per_rank(cores())


PAIR = PairProbes(6.25e6, 1500, 4096, [], [], [], [], [], 0, 0, 0.0, 0, [])


def profile(**changes: object) -> ModelProfile:
    """Return a profile of a network with two layers. The last layer's gradients are ready at a quarter of backward."""
    layers = tuple(Layer(f"l{count}", "Linear", f"l{count}", (count,), 1, 1, 0, 0, 0, 0, 0) for count in PARAMETERS)
    times = Measured("a processor", 60, "float32", (0.01, 0.03), (0.06, 0.02), 0.005, 0.0, 0.125, "test", RANK)
    return ModelProfile("tiny", "3x32x32", 4, "test", layers, None, (times._replace(**changes),))


def test_emulated_ranks_compute_at_the_speed_of_the_profile() -> None:
    trainings = load(SCENARIO).trainings
    calibration = computing_of(profile(), trainings, "one.json")
    for training in trainings:
        together = calibration.phases(training, cores(), RANK)
        assert together is not None and together == calibration.phases(training, 1, RANK)
        assert (together.forward, together.backward, together.optimizer) == pytest.approx((0.04, 0.08, 0.005))
    assert len(calibration.overlap) == 1
    assert calibration.overlap[0].gradients == [(4 * PARAMETERS[1], 0.25), (4 * PARAMETERS[0], 1.0)]


def test_emulated_step_time_grows_with_ranks_per_core() -> None:
    ring = next(training for training in load(SCENARIO).trainings if training.sync_name == "ring")
    calibration = computing_of(profile(), [ring], "one.json")
    for ranks in (2 * cores(), 4 * cores()):
        star = as_emulated(simcomm.star(ranks, "1 Tbit/s", "0 us"))
        trace = simcomm.train(ring, star, calibration=calibration, steps=1)
        assert trace.elapsed == pytest.approx(0.125 * ranks / cores(), rel=0.01)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"batch_size": 32}, "batch size 32 in float32, but the scenario uses batch size 60"),
        ({"precision": "bf16"}, "batch size 60 in bf16"),
        ({"threads": RANK + 1}, f"measured with {RANK + 1} threads, but ranks on this machine have {RANK}"),
        ({"threads": 0}, "no processor whose threads are known"),
    ],
)
def test_profile_of_other_batch_size_or_threads_is_rejected(changes: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        computing_of(profile(**changes), load(SCENARIO).trainings, "one.json")


def test_profile_of_another_model_is_rejected() -> None:
    with pytest.raises(InputError, match="1,115,946 parameters, but the scenario's model 'resnet18' has 11,181,642"):
        computing_of(profile(), [Training(None)], "one.json")
    with pytest.raises(InputError, match=r"profile one\.json contains no times; make one with `ringlab profile"):
        computing_of(replace(profile(), measured=()), [Training(None)], "one.json")


def test_one_rank_command_shows_errors_and_failed_host_counts(
    ringlab: Ringlab, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file, requests = tmp_path / "one.json", list[list[tuple[str, LoadedScenario]]]()
    profile().write(file)
    rows = tuple(EmulatedRow("2", f"ring: {phase}", 2, None, 1.1, 1.0) for phase in ("step", "sync"))

    def measure(scenarios: list[tuple[str, LoadedScenario]], *rest: object) -> EmulatedRows:
        requests.append(scenarios)
        return EmulatedRows(rows, {"4": "a queue dropped packets"}, 3.0)

    monkeypatch.setattr(one_rank, "compare_each", measure)
    command = in_this_process(monkeypatch, capsys, partial(exit_with_a_line, one_rank.app))
    arguments = (SCENARIO, "--profile", file, "--json", tmp_path / "a.json")
    done = command(*arguments, "--devices", "2,4")
    assert done.status == 0 and "+10.0 %" in done.out and "4 hosts were not measured: a queue dropped" in done.out
    assert [(name, scenario.cluster.world_size) for name, scenario in requests[0]] == [("2", 2), ("4", 4)]
    assert '"kind": "profiled rank"' in (tmp_path / "a.json").read_text()
    assert "of at least 2" in command(*arguments, "--devices", "1,2").err
    assert "use `python -m benchmarks.accuracy.one_rank`" in ringlab("compare", SCENARIO, "--devices", "2,4").err


def test_emulated_comparison_continues_after_a_rejected_scenario() -> None:
    row, scenario = EmulatedRow("2", "ring: step", 2, None, 1.1, 1.0), load(SCENARIO)
    compare = Mock(side_effect=[[row], InputError("too wide"), KeyboardInterrupt, [row]])
    rows = compare_each([(name, scenario) for name in "abcd"], compare, Progress())
    assert rows.refused == {"b": "too wide", "c": "interrupted, as were all that follow"}
    assert [replace(compared, is_busy=False) for compared in rows.rows] == [row] and compare.call_count == 3
    with pytest.raises(RunFailed, match="too wide"):
        compare_each([("a", scenario)], Mock(side_effect=InputError("too wide")), Progress())


def test_emulated_training_scenarios_have_four_and_eight_ranks():
    syncs = {"naive", "ring", "ring[overlap, bucket_mb=1.5]", "ddp"}
    for name, hosts in (("training", 4), ("training8", 8)):
        scenario = load(f"emulated/{name}")
        assert (scenario.cluster.world_size, {training.sync_name for training in scenario.trainings}) == (hosts, syncs)
        build_model(scenario.trainings[0], seed=0)  # refuses another number
