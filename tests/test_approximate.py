"""The approximate engine: events that lie close together are one, at far fewer instants, with an error that is said."""

from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest

import simcomm
from collectives import find_algorithm
from collectives.errors import InputError
from collectives.records.summary import collective_entry
from collectives.records.trace import Trace
from collectives.training.workload import ComputePhases, Training
from ringlab.scenario import load
from simcomm.compiled import engine as compiled
from simcomm.compiled import engine as compiled_engine
from simcomm.compiled.kernel import event_loop
from simcomm.model.faults import Faults, LinkFault, RankFault
from simcomm.model.jitter import Jitter

LATE = Faults(messages=Jitter("exponential", 1e-6))
TREE = simcomm.two_level_tree(2, 16, "100 Gbit/s", "1 us", 4.0)
STAR = simcomm.star(32, "100 Gbit/s", "1 us")
SCENARIO = """
[cluster]
topology = "star"
hosts = 40
bandwidth = "100 Gbit/s"
latency = "1 us"
[collective]
name = "all_to_all"
algorithms = ["direct"]
sizes = ["4 MiB"]
[faults]
repetitions = 2
messages = { distribution = "exponential", mean = "1 us" }
"""


def elapsed(name: str, cluster: simcomm.Cluster, engine: str, faults: Faults = LATE) -> Trace:
    return simcomm.run(name, cluster, 1 << 24, faults=faults, engine=engine, record=False)


@pytest.mark.parametrize("cluster", [TREE, STAR], ids=["tree", "star"])
@pytest.mark.parametrize("name", ["all_to_all/direct", "all_to_all/pairwise", "all_reduce/double_tree"])
def test_times_are_right_to_what_is_said(name: str, cluster: simcomm.Cluster):
    exact, found = (elapsed(name, cluster, engine) for engine in ("compiled", "approximate"))
    assert (found.engine, exact.engine, "error_s" in exact.facts) == ("approximate", "compiled", False)
    assert 0 < found.facts["error_s"] < 0.03 * exact.elapsed
    wrong = abs(found.elapsed - exact.elapsed)
    assert wrong < 5e-3 * exact.elapsed  # in chains of steps the error that is said is an estimate and no bound
    assert wrong <= found.facts["error_s"] or name != "all_to_all/direct"
    assert collective_entry(found)["error_s"] == found.facts["error_s"]


def test_far_fewer_instants_are_looked_at(monkeypatch):
    looks = dict.fromkeys(("compiled", "approximate"), 0)
    plain = event_loop.advance
    monkeypatch.setattr(compiled, "INSTANTS_A_LOOK", 1)
    for engine in looks:

        def advance(*asked, engine=engine):
            looks[engine] += 1
            return plain(*asked)

        monkeypatch.setattr(event_loop, "advance", advance)
        elapsed("all_to_all/direct", STAR, engine)
    assert looks["compiled"] >= 2 * 31 * 32
    assert looks["approximate"] < looks["compiled"] / 3  # and those of two runs


def test_single_messages_take_part():
    found = simcomm.run("all_to_all/direct", STAR, 1 << 20, faults=LATE, engine="approximate")
    times = found.messages
    assert len(times) == 31 * 32
    assert (np.asarray(times.end) >= np.asarray(times.begin)).all()
    assert max(times.end) == found.elapsed


@pytest.mark.parametrize(
    "faults",
    [
        Faults(messages=LATE.messages, links=(LinkFault(("h3", "s0"), share=0.2, at=1e-4, lasting=2e-4),)),
        Faults(messages=LATE.messages, links=(LinkFault(("h3", "s0"), share=0.5, at=1e-5, lasting=2e-5, every=5e-5),)),
    ],
)
def test_links_may_change_meanwhile(faults: Faults):
    exact, found = (elapsed("all_to_all/direct", STAR, engine, faults) for engine in ("compiled", "approximate"))
    assert found.elapsed == pytest.approx(exact.elapsed, rel=3e-3)


def test_a_run_that_never_ends_is_one():
    faults = Faults(messages=LATE.messages, ranks=(RankFault(3, fails_at=1e-4),))
    exact, found = (elapsed("all_to_all/pairwise", STAR, engine, faults) for engine in ("compiled", "approximate"))
    assert not exact.is_complete and not found.is_complete
    assert {one.rank for one in found.unfinished} == {one.rank for one in exact.unfinished}


def test_shortcuts_are_tried_once(monkeypatch):
    tried = Mock(side_effect=compiled.by_shortcut)
    monkeypatch.setattr(compiled, "by_shortcut", tried)
    for number, engine in enumerate(("compiled", "approximate"), 1):
        elapsed("all_to_all/direct", STAR, engine)
        assert tried.call_count == number


def test_where_only_one_of_two_runs_ends_the_answer_is_exact(monkeypatch):
    plain, windows = compiled.one_by_one, []

    def never(inputs, *, messages=False, window=0.0):
        windows.append(window)
        found = plain(inputs, messages=messages, window=window)
        return found._replace(elapsed=np.inf) if len(windows) == 2 else found

    monkeypatch.setattr(compiled_engine, "one_by_one", never)
    found = elapsed("all_to_all/direct", STAR, "approximate")
    assert windows[1] == 8 * windows[0] > 0 == windows[2]
    assert (found.engine, "error_s" in found.facts) == ("compiled", False)
    assert found.elapsed == elapsed("all_to_all/direct", STAR, "compiled").elapsed


def test_shortcuts_trainings_and_few_messages_are_exact():
    ring = elapsed("all_reduce/ring", STAR, "approximate")
    assert (ring.method, ring.engine, ring.elapsed) == (
        "max-plus",
        "compiled",
        elapsed("all_reduce/ring", STAR, "compiled").elapsed,
    )
    job = Training(find_algorithm("all_reduce/naive"), compute=ComputePhases(0.06, 0.12, 0.005))
    of_engines = [
        simcomm.train(job, STAR, record=False, faults=LATE, engine=name) for name in ("compiled", "approximate")
    ]
    assert of_engines[0].elapsed == of_engines[1].elapsed and of_engines[1].engine == "compiled"


def test_data_needs_simpy():
    buffers = [np.zeros(8, np.float32) for _ in range(2)]
    with pytest.raises(InputError, match="the approximate engine does not support buffers; use engine 'simpy'"):
        simcomm.run("all_reduce/ring", simcomm.star(2, "1 GB/s", "1 us"), buffers=buffers, engine="approximate")


def test_an_answer_says_how_wrong_it_may_be(tmp_path: Path):
    file = tmp_path / "late.toml"
    file.write_text(SCENARIO)
    answer = load(str(file)).predict(engine="approximate")
    (entry,) = answer.to_dict()["collectives"]
    assert entry["engine"] == "approximate" and 0 < entry["error_s"] < 0.03 * entry["time_s"]
    (said,) = [sentence for sentence in answer.conclusions if "Approximate" in sentence]
    assert said.endswith("of each; with the compiled engine they are exact.")
