"""Models trained on virtual ranks by torch's own ways: losses are those of one device, times those of the replay."""

from pathlib import Path

import pytest
from virtual_runs import VirtualRuns

import simcomm
from simcomm.recorded.replay import replay

PROGRAM = Path(__file__).parent / "virtual_programs" / "trained.py"
WAYS = ("ddp", "ddp_hook", "fsdp1", "fsdp2", "hsdp", "tensor", "sequence", "pipeline")


@pytest.mark.parametrize("way", WAYS)
def test_losses_are_those_of_one_device_and_the_replay_takes_as_long(virtual: VirtualRuns, way: str) -> None:
    cluster = simcomm.two_level_tree(2, 2, "10 Gbit/s", "5 us", 4.0)
    ran = virtual(PROGRAM, 4, way, cluster=cluster, compute="model", timing="live")
    assert [ran.lines(rank) for rank in range(4)] == [["equal"]] * 4, (ran.out, ran.err)
    assert ran.outcome.findings == () and ran.recording is not None
    again = replay(ran.recording, cluster)
    assert again.elapsed == pytest.approx(ran.outcome.jobs[0].elapsed, rel=1e-9)


@pytest.mark.parametrize("way", ["ddp", "ddp_hook", "pipeline"])
def test_a_run_without_a_calendar_records_what_a_live_one_does(virtual: VirtualRuns, way: str) -> None:
    cluster = simcomm.two_level_tree(2, 2, "10 Gbit/s", "5 us", 4.0)
    found = []
    for timing in ("live", "recorded"):
        ran = virtual(PROGRAM, 4, way, cluster=cluster, compute="model", timing=timing)
        assert ran.recording is not None
        found.append(replay(ran.recording, cluster).elapsed)
    assert found[0] == pytest.approx(found[1], rel=1e-12)


def test_a_distributed_checkpoint_is_read_again_and_join_takes_unequal_batches(
    virtual: VirtualRuns, tmp_path: Path
) -> None:
    ran = virtual(PROGRAM.with_name("kept.py"), 3, str(tmp_path / "kept"))
    assert [ran.lines(rank) for rank in range(3)] == [["True", "joined"]] * 3, (ran.out, ran.err)
    assert ran.outcome.findings == ()
