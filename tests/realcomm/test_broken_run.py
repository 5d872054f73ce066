"""The Trace of a failed run: its messages, the failed rank, and the ranks that wait for each other."""

from pathlib import Path

import pytest
import real_workers

import simcomm
from collectives import find_algorithm, read_trace
from collectives.call import make_call
from collectives.records.limits import find_limits
from collectives.training.workload import Training
from realcomm.execution import broken_run
from realcomm.launching.failures import RankFailed, TimedOut
from realcomm.launching.launcher import launch
from realcomm.measuring.collective_run import TimedCall
from realcomm.training import trainer

RANKS, BAD, STEP = 4, 2, 3


@pytest.mark.parametrize("how", ["kill", "raise", pytest.param("hang", marks=pytest.mark.slow)])
def test_trace_of_a_failed_run_ends_at_the_failure(how: str, tmp_path: Path):
    """Rank 2 fails in the fourth step of the third execution."""
    call = make_call(find_algorithm("all_reduce/ring"), RANKS, 1 << 12)
    work = TimedCall(call, 1, 3, None), BAD, STEP, how
    launch(max, RANKS)  # the first launch waits for imports
    with pytest.raises(TimedOut if how == "hang" else RankFailed) as caught:
        launch(real_workers.break_in_step, RANKS, *work, timeout=20.0 if how == "hang" else 60.0)
    trace = broken_run.trace_broken_run(call, simcomm.this_machine(RANKS), caught.value)
    assert trace is not None
    assert not trace.is_complete
    assert find_limits(trace).heading == ("The run never ends" if how == "hang" else "Rank 2 fails")
    assert list(trace.failed) == ([] if how == "hang" else [BAD])
    assert all(0 < at <= trace.elapsed for at in trace.failed.values())
    steps = {rank: [message.dst_step for message in trace.messages if message.dst == rank] for rank in range(RANKS)}
    if how != "kill":  # then it can tell
        assert steps[BAD] == list(range(STEP)), "it has received in every step before the one in which it breaks"
    assert steps[(BAD + 1) % RANKS] == list(range(STEP + 1)), "what it had posted there has arrived"
    waits = {(message.rank, message.peer, message.sends, message.step) for message in trace.unfinished}
    assert ((BAD + 1) % RANKS, BAD, False, STEP + 1) in waits
    trace.write(tmp_path / "broken.trace.json")
    assert read_trace(tmp_path / "broken.trace.json") == trace


@pytest.mark.slow
def test_failed_training_has_a_trace_of_phases_and_sync():
    training = Training(find_algorithm("all_reduce/ring"), batch_size=4)
    with pytest.raises(RankFailed) as caught:
        launch(real_workers.break_training, 2, training, timeout=120.0)
    trace = trainer.trace_broken_training(training, simcomm.this_machine(2), caught.value)
    assert trace is not None
    assert (trace.title, list(trace.failed)) == ("training/ring", [1])
    names = [span.name for span in trace.spans if span.rank == 0]
    before = ["loading", "forward", "backward"]
    assert names == [*before, "sync", "optimizer", *before], "the second sync never ends"
    assert {message.collective for message in trace.messages} == {1}
    assert (0, 1, False) in {(message.rank, message.peer, message.sends) for message in trace.unfinished}
