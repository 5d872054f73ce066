"""Metrics and logs of a training: complete rows in any case, and one run for each folder."""

import json
import logging
from pathlib import Path
from types import SimpleNamespace

import pytest
import training_workers
from command_line import small_files

from collectives import find_algorithm
from collectives.errors import InputError
from collectives.training.workload import Training
from realcomm.launching.failures import RankFailed
from realcomm.launching.launcher import launch
from realcomm.training.checkpoints import find_start
from realcomm.training.observing import EpochRecord, StepRecord
from realcomm.watching.log_folder import MetricsFile, Start, locked_log_folder, read_metrics, repair
from realcomm.watching.watch import LogObserver, Watch

PHASES = {"forward": 0.1, "backward": 0.2, "sync": 0.05, "optimizer": 0.01}
RING = Training(find_algorithm("all_reduce/ring"))


def step(number: int, sync: str = "ring") -> StepRecord:
    fields = {"gradient_sync": sync, "step": number, "epoch": number // 4, "loss": 2.0 - number / 8}
    more = dict.fromkeys(set(StepRecord._fields) - {*fields, "learning_rate", "phases", "samples_per_s"})
    return StepRecord(**fields, **more, learning_rate=0.004, phases=PHASES, samples_per_s=177.8)


def epoch(number: int, sync: str = "ring") -> EpochRecord:
    fields = {"gradient_sync": sync, "step": 4 * number + 3, "epoch": number, "test_accuracy": 0.9}
    return EpochRecord(**fields, examples_seen=256 * (number + 1))


def running(rank: int = 0, done: int = 0) -> SimpleNamespace:
    watch = SimpleNamespace(current="sync")
    return SimpleNamespace(training=RING, rank=rank, world_size=2, done=done, steps=8, watch=watch)


def rows_of(file: Path) -> list[dict]:
    return [json.loads(line) for line in file.read_text().splitlines()]


# The rows


def test_metrics_have_a_row_for_each_step_and_epoch(tmp_path):
    observer = LogObserver(tmp_path, Start(attempt=1))
    observer.begin(running())
    observer.step_done(running(done=4), step(3))
    observer.epoch_done(running(done=4), epoch(0))
    observer.end(running(done=8), None)
    first, second = rows_of(tmp_path / "metrics.jsonl")
    assert {name: value for name, value in first.items() if value is not None} == {
        "kind": "step", "gradient_sync": "ring", "step": 3, "epoch": 0, "loss": 1.625, "learning_rate": 0.004,
        "samples_per_s": 177.8, "forward_s": 0.1, "backward_s": 0.2, "sync_s": 0.05, "optimizer_s": 0.01, "attempt": 1,
    }  # fmt: skip
    assert second == {
        "kind": "epoch", "gradient_sync": "ring", "step": 3, "epoch": 0, "test_accuracy": 0.9, "examples_seen": 256,
        "attempt": 1,
    }  # fmt: skip


def test_only_rank_0_writes_metrics_and_every_rank_its_log(tmp_path, capsys):
    for rank in (0, 1):
        observer = LogObserver(tmp_path, Start(fragment='{"ste'))
        observer.begin(running(rank))
        logging.getLogger("ringlab").info("a line of mine\n\x1b[31m")
        observer.step_done(running(rank), step(0))
        observer.end(running(rank, done=3), ZeroDivisionError("no sheep"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["metrics.jsonl", "rank-0.log", "rank-1.log"]
    assert len(rows_of(tmp_path / "metrics.jsonl")) == 1
    first, second = ((tmp_path / f"rank-{rank}.log").read_text() for rank in (0, 1))
    assert " rank 1 INFO training/ring: resnet18 on digits, step 0 of 8, 2 ranks, cpu, " in second
    assert " rank 1 INFO a line of mine ?[31m\n" in second
    assert " rank 1 INFO failed in step 3, sync\n" in second and second.endswith("ZeroDivisionError: no sheep\n")
    warning = 'metrics.jsonl: its last line was incomplete and is dropped: {"ste\n'
    assert first.count(warning) == 1 and warning not in second
    assert capsys.readouterr() == ("", warning)  # only rank 0 warns


def test_incomplete_row_of_a_killed_writer_is_removed(tmp_path):
    file = tmp_path / "metrics.jsonl"
    rows = [{"kind": "step", "step": number, "loss": 0.5, "name": "ü"} for number in range(2)]
    first, last = (f"{json.dumps(row, ensure_ascii=False)}\n".encode() for row in rows)
    for cut in range(len(last) + 1):
        file.write_bytes(first + last[:cut])
        row, fragment = repair(file)
        assert fragment[:1] == ("{" if 0 < cut < len(last) else "")
        rows_left = rows if cut == len(last) else rows[:1]
        assert row == rows_left[-1] and read_metrics(file) == rows_left and repair(file) == (row, "")


@pytest.mark.parametrize("text", ["precious\n{", '{"step": 0}\nprecious', "[1]\n"])
def test_foreign_metrics_file_is_rejected_and_not_changed(text: str, tmp_path):
    file = tmp_path / "metrics.jsonl"
    file.write_text(text)
    with (
        pytest.raises(InputError, match=r"metrics\.jsonl: the last line is not a row of metrics: .* another dir"),
        locked_log_folder(tmp_path, resumes=True),
    ):
        pass
    assert file.read_text() == text


def test_metrics_are_buffered_while_the_disk_is_full(tmp_path):
    file = MetricsFile(tmp_path / "metrics.jsonl")
    file.add({"step": 0})
    with small_files(15):  # the first row has 12 bytes: of the second a part would go
        file.add({"step": 1})
        assert file.missing == 1 and file.problem
        assert file.path.read_bytes() == b'{"step": 0}\n'
        file.add({"step": 2})
        assert file.missing == 2
    file.add({"step": 3})
    file.close()
    assert (file.missing, file.problem) == (0, "")
    assert [row["step"] for row in rows_of(file.path)] == [0, 1, 2, 3]


def test_training_continues_when_the_disk_is_full(tmp_path, capsys):
    observer = LogObserver(tmp_path)
    observer.begin(running())
    with small_files(0):
        for number in range(3):
            observer.step_done(running(), step(number))
        observer.end(running(done=8), None)
    first, second = capsys.readouterr().err.splitlines()
    assert "metrics.jsonl is not writable: " in first and "the training continues" in first
    assert second.endswith("its last 3 rows are missing")
    assert (tmp_path / "metrics.jsonl").read_text() == ""


def test_metrics_with_a_malformed_line_are_rejected(tmp_path: Path) -> None:
    file = tmp_path / "metrics.jsonl"
    steps: tuple[object, ...] = (1, [1], {}, 1, None, "1")
    rows = [{"kind": "step", "gradient_sync": "ring", "step": step} for step in steps]
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    assert read_metrics(file) == [rows[0], *rows[1:3], *rows[4:]]
    file.write_text('{"step": 0}\nnonsense\n{"step": 1}\n')
    with pytest.raises(InputError, match=r"metrics\.jsonl: line 2 is not a row of metrics: 'nonsense'"):
        read_metrics(file)


def test_ranks_write_metrics_and_logs(tmp_path, monkeypatch):
    """Rank 1 is killed in its fifth step; the run resumes from the checkpoint after the third."""
    monkeypatch.setattr("realcomm.training.datasets.load_images", training_workers.few_images)  # as the ranks have it
    training = training_workers.small(gradient_sync=RING.gradient_sync, epochs=2, checkpoints=tmp_path / "kept")
    watch, fault = Watch(tmp_path / "logs"), training_workers.faulty("kill", "sync")
    with watch.observing(resumes=False) as observers, pytest.raises(RankFailed):
        launch(training_workers.train_with, 2, training, [*observers, fault], timeout=120.0)
    start = find_start(training, 2, "auto")
    with watch.observing(resumes=True) as observers:
        launch(training_workers.train_with, 2, training, observers, start.checkpoint, timeout=120.0)
    written = [(row["kind"], row["step"], row["attempt"]) for row in rows_of(watch.folder / "metrics.jsonl")]
    before = [*(("step", number, 0) for number in range(3)), ("epoch", 2, 0), ("step", 3, 0)]
    assert written == [*before, *(("step", number, 1) for number in range(3, 6)), ("epoch", 5, 1)]
    rows = read_metrics(watch.folder / "metrics.jsonl", "ring", "step")
    assert [row["attempt"] for row in rows] == [0, 0, 0, 1, 1, 1]
    assert rows_of(watch.folder / "metrics.jsonl")[4]["loss"] == rows[3]["loss"]  # the same step, done again
    for rank in range(2):
        log = (watch.folder / f"rank-{rank}.log").read_text()
        assert [f"step {number} of 6, 2 ranks" in log for number in (0, 3)] == [True, True]
        assert f"rank {rank} INFO training/ring: all 6 steps are done" in log


# The folder


def test_folder_is_locked_by_one_run(tmp_path):
    for _ in range(2):  # free again afterwards
        with (
            locked_log_folder(tmp_path / "new", resumes=False),
            pytest.raises(InputError, match="new is in use by another run; use another directory for --log-dir"),
            locked_log_folder(tmp_path / "new", resumes=False),
        ):
            pass


def test_metrics_of_another_run_are_not_overwritten(tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"step": 0}\n')
    with pytest.raises(InputError, match=r"contains the metrics of another run; resume it with --resume auto"):
        Watch(tmp_path).check(resumes=False)
    Watch(tmp_path).check(resumes=True)
    assert (tmp_path / "metrics.jsonl").read_text() == '{"step": 0}\n'


def test_run_restarted_by_torchrun_continues_its_metrics(tmp_path, monkeypatch):
    (tmp_path / "metrics.jsonl").write_text('{"attempt": 1}\n{"st')
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    with Watch(tmp_path).observing(resumes=False) as (observer,):
        assert isinstance(observer, LogObserver) and observer.start == (2, '{"st')


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (Path.touch, "is not a directory"),
        (lambda path: path.symlink_to("/proc/self"), "virtual directory of the kernel"),
        (lambda path: (path / "metrics.jsonl").mkdir(parents=True), "is a directory"),
        (lambda path: (path.mkdir(), (path / ".in-use").symlink_to("../precious")), r"\.in-use is a symbolic link"),
    ],
    ids=["file", "kernel", "directory", "link in use"],
)
def test_invalid_log_folder_is_rejected(made, message, tmp_path):
    path = tmp_path / "logs"
    made(path)
    with pytest.raises(InputError, match=message), locked_log_folder(path, resumes=False):
        pass
