"""Trainings that resume from a checkpoint as if they had never stopped, and the errors if they cannot."""

import re
from collections.abc import Sequence
from contextlib import closing, nullcontext, suppress
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import training_workers
from command_line import Ringlab
from PIL import Image
from training_workers import BATCH, RECIPES, STEPS_PER_EPOCH, faulty, small

from collectives import InputError
from collectives.errors import RunFailed
from collectives.output_files import TEMPORARY
from collectives.training.workload import TO_TRAIN_ON
from realcomm.launching.failures import RankFailed, TimedOut
from realcomm.launching.launcher import launch
from realcomm.training.checkpoints import (
    FRESH_START,
    CheckpointFolder,
    Checkpointing,
    check_finite,
    describe_training,
    find_newest,
    find_start,
)
from realcomm.training.observing import Observer
from realcomm.training.trainer import train
from simcomm import this_machine

RING = RECIPES["ring"]["gradient_sync"]


def test_resumed_training_equals_uninterrupted_training_bitwise(tmp_path: Path):
    """Also with more epochs: weights, optimizers, schedules, batches and random states continue.

    So do the crops and mirrors of a picture folder, which another process loads.
    """
    draw_pictures(tmp_path / "pictures")
    for ways in launch(training_workers.go_on_in_every_way, 2, tmp_path):
        for name, (uninterrupted, from_second, from_newest, at_the_end) in ways.items():
            losses, digest = uninterrupted
            assert len(losses) == 2 * STEPS_PER_EPOCH and len(set(losses)) == len(losses), name
            assert from_second == (losses[2:], digest), name
            assert from_newest == (losses[STEPS_PER_EPOCH:], digest), name
            assert at_the_end == ([], digest), name


def draw_pictures(folder: Path) -> None:
    drawn = np.random.default_rng(0)
    for number in range(2 * STEPS_PER_EPOCH * BATCH + 4):
        file = folder / ("test" if number < 4 else "train") / "ab"[number % 2] / f"{number}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(drawn.integers(0, 256, (32, 32, 3), np.uint8)).save(file)


def test_more_ranks_resume_with_the_same_images_per_step(tmp_path: Path):
    uninterrupted = launch(training_workers.learn_together, 2, tmp_path, None)
    more = launch(training_workers.learn_together, 4, tmp_path, tmp_path / "ring" / "step-00000004.pt")
    assert [len(losses) for losses, *_ in uninterrupted + more] == [6] * 2 + [2] * 4
    assert {seen for *_, seen in uninterrupted + more} == {6 * 2 * BATCH}
    for losses, weights, _ in more:
        torch.testing.assert_close(losses, uninterrupted[0][0][4:], rtol=1e-5, atol=0)
        torch.testing.assert_close(weights, uninterrupted[0][1], rtol=1e-4, atol=1e-6)


def test_resume_on_other_ranks_requires_equal_global_batch(scenario: Path):
    keep(scenario / "kept" / "ring", 10)
    half = small(gradient_sync=RING, batch_size=4, checkpoints="kept")
    (note,) = find_start(half, 4, "auto").notes
    assert "resumes from kept/ring/step-00000010.pt (step 10, epoch 1), on 4 ranks instead of 2: steps have" in note
    with pytest.raises(InputError, match="has 2 ranks and 16 images per step, but this run has 3 ranks and 12 images"):
        find_start(half, 3, "auto")
    keep(scenario / "local" / "ring", 10, sync_every=2)
    with pytest.raises(InputError, match=r"or set training\.global_batch_size = .* without sync_every"):
        find_start(small(gradient_sync=RING, batch_size=4, sync_every=2, checkpoints="local"), 4, "auto")


@pytest.mark.parametrize(
    ("kind", "phase", "message"),
    [
        ("kill", "sync", r"rank 1 was killed by SIGKILL.*training step 4, sync"),
        ("full", "optimizer", r"rank 0 failed with OSError: .*File too large.*\.pt.*training step 4, checkpoint"),
        ("kill writer", "optimizer", r"rank 0 was killed by SIGKILL.*training step 4, checkpoint"),
        pytest.param("stop", "forward", "rank 1: training step 4, forward, stopped by a sig", marks=pytest.mark.slow),
    ],
)
def test_failure_names_step_and_keeps_checkpoint(kind, phase, message, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("realcomm.training.datasets.load_images", training_workers.few_images)  # as the ranks have it
    training = small(gradient_sync=RING, epochs=2, checkpoints=tmp_path, checkpoint_every=5)
    with pytest.raises(TimedOut if kind == "stop" else RankFailed, match=message):
        launch(training_workers.train_with, 2, training, [faulty(kind, phase)], timeout=90.0)
    newest, skipped = find_newest(tmp_path / "ring")
    assert newest is not None and (newest.about["step"], skipped) == (3, [])
    start = find_start(training, 2, "auto")
    assert start.checkpoint == newest.path
    assert re.fullmatch(r"ring: resumes from .*ring/step-00000003\.pt \(step 3, epoch 2\)", *start.notes)
    CheckpointFolder(tmp_path / "ring").close()
    assert [path.name for path in tmp_path.glob("ring/.*")] == [".lock"], "nothing is left of the one not written"


def test_metrics_are_written_before_their_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A resumed training skips these steps, so a kill in between would lose their rows."""
    started: list[Sequence[Observer]] = []
    monkeypatch.setattr("realcomm.training.trainer.launch", lambda *arguments, **named: started.append(arguments[-1]))
    looking_on, training = Observer(), small(gradient_sync=RING, checkpoints=tmp_path, checkpoint_every=3)
    with suppress(TypeError):  # there is no result
        train(training, this_machine(2), observers=iter([looking_on]))
    [(first, last)] = started
    assert first is looking_on and isinstance(last, Checkpointing)
    written: list[int] = []
    monkeypatch.setattr(Checkpointing, "_write", lambda self, running, step: written.append(step))
    for step in range(6):  # two epochs of four steps and two
        running, record = SimpleNamespace(done=step + 1, at_epoch_end=step in (3, 5)), SimpleNamespace(step=step)
        last.step_done(running, record)
        assert written == [2, 3][: (step > 1) + (step > 3)]
        if running.at_epoch_end:
            last.epoch_done(running, record)
    assert written == [2, 3, 5]


def test_interrupted_checkpoint_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    last, training = keep(tmp_path / "ring", 10), small(gradient_sync=RING, batch_size=8, checkpoints=tmp_path)
    unfinished = tmp_path / "ring" / f"{TEMPORARY}step-00000020.pt"

    def interrupted(*arguments: object, **named: object) -> None:
        unfinished.write_text("{}")
        raise KeyboardInterrupt

    monkeypatch.setattr("realcomm.training.trainer.launch", interrupted)
    for other_run in (True, False):
        lock = closing(CheckpointFolder(tmp_path / "ring")) if other_run else nullcontext()
        with lock, pytest.raises(KeyboardInterrupt):
            train(training, this_machine(2), resume=FRESH_START)
        assert unfinished.exists() == other_run
    newest = find_newest(tmp_path / "ring").newest
    assert newest is not None and newest.path == last


def test_non_finite_weights_are_not_saved():
    check_finite({"a": torch.full((2,), 3e38), "steps": torch.tensor(3)}, 7)
    with pytest.raises(RunFailed, match="b is not finite after 7 steps; no checkpoint was written"):
        check_finite({"a": torch.zeros(2), "b": torch.tensor([1.0, torch.inf])}, 7)


SCENARIO = """
[cluster]
preset = "this-machine"
world_size = 2
[training]
gradient_sync = {syncs}
batch_size = 8
checkpoints = "kept"
"""


@pytest.fixture
def scenario(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A scenario with checkpoints in the working directory; no process may start."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        "realcomm.training.trainer.launch", lambda *arguments, **named: pytest.fail("a process was started")
    )
    (tmp_path / "ring.toml").write_text(SCENARIO.format(syncs=["ring"]))
    return tmp_path


def keep(folder: Path, step: int, world_size: int = 2, **changed: object) -> Path:
    training = describe_training(small(gradient_sync=RING, batch_size=8, **changed), TO_TRAIN_ON["digits"])
    checkpoints = CheckpointFolder(folder)
    about = {"step": step, "epoch": 0, "world_size": world_size, "training": training}
    path = checkpoints.write({"about": about, "shared": {}, "ranks": [{}] * world_size})
    checkpoints.close()
    return path


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("", r"kept/ring already contains checkpoints, up to step-00000010.pt; resume them with --resume auto"),
        ("--resume nowhere.pt", "nowhere.pt: no such file"),
        ("--resume ring.toml", "ring.toml is not a checkpoint, or is truncated: BadZipFile"),
        ("--resume auto --set training.images=1000", "with images = 1437, but this run has 1000"),
        ("--resume kept/ring/step-00000010.pt --set training.gradient_sync=naive", "with gradient_sync = 'ring'"),
        (
            '--resume kept/ring/step-00000010.pt --set training.gradient_sync=["ring","ddp"]',
            "requires a single gradient sync, but the scenario trains with ring, ddp; pass --r",
        ),
        ("--resume auto --set training.checkpoints=ring.toml", "ring.toml/ring/step.* cannot be written"),
        ("--set training.checkpoints=ring.toml", "ring.toml/ring cannot be|ring.toml/ring/step.* cannot be written"),
    ],
)
def test_invalid_resume_is_rejected_before_any_process_starts(arguments, message, scenario: Path, ringlab: Ringlab):
    keep(scenario / "kept" / "ring", 10)
    done = ringlab("run", "ring.toml", *arguments.split())
    assert done.status == 2 and re.search(message, done.err.replace("\n", " ")), done.err


def test_damaged_checkpoint_is_skipped_with_a_warning(scenario: Path):
    training = small(gradient_sync=RING, batch_size=8, checkpoints="kept")
    assert find_start(training, 2, "auto").notes == ["ring: no complete checkpoint in kept/ring; starting afresh"]
    last = [keep(scenario / "kept" / "ring", step) for step in (10, 20)][-1]
    last.write_bytes(last.read_bytes()[:-1])
    warning, note = find_start(training, 2, "auto").notes
    assert "step-00000020.pt is not a checkpoint" in warning and "resumes from kept/ring/step-00000010.pt" in note
    with pytest.raises(InputError, match=r"step-00000020\.pt is not a checkpoint, or is truncated"):
        find_start(training, 2, last)


def test_only_rank_0_looks_for_checkpoints_under_torchrun(scenario: Path, monkeypatch: pytest.MonkeyPatch):
    keep(scenario / "kept" / "ring", 10)
    monkeypatch.setenv("WORLD_SIZE", "2")
    for rank, start in (("1", None), ("0", Path("kept/ring/step-00000010.pt"))):
        monkeypatch.setenv("RANK", rank)
        assert find_start(small(gradient_sync=RING, batch_size=8, checkpoints="kept"), 2, "auto").checkpoint == start
