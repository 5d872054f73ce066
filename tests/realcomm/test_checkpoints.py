"""Checkpoints are complete or absent, whatever ends their writer, and are rejected with a reason."""

import itertools
import os
import pickle
import zipfile
from contextlib import closing, suppress
from pathlib import Path

import pytest
import torch

from collectives import InputError
from realcomm.training.checkpoints import KEPT, CheckpointFolder, check_folder, find_newest, open_checkpoint
from realcomm.training.observing import State

TRAINING = {"model": "resnet18", "batch_size": 32}


def state_of(step: int) -> State:
    about = {"step": step, "epoch": 0, "world_size": 2, "training": TRAINING}
    return {"about": about, "shared": {"weights": torch.full((1000,), step)}, "ranks": [{}, {}]}


def write(folder: Path, *steps: int) -> list[Path]:
    open_folder = CheckpointFolder(folder)
    written = [open_folder.write(state_of(step)) for step in steps]
    open_folder.close()
    return written


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name != ".lock")


def test_folder_keeps_the_last_two_checkpoints(tmp_path: Path):
    write(tmp_path, 10, 20, 30)
    assert names(tmp_path) == ["step-00000020.pt", "step-00000030.pt"]
    newest, skipped = find_newest(tmp_path)
    assert newest is not None and skipped == []
    assert (newest.path.name, newest.about["step"]) == ("step-00000030.pt", 30)
    assert newest.state["shared"]["weights"].eq(30).all()
    write(tmp_path, 10)  # the last one is the newest, whatever its step
    newest = find_newest(tmp_path).newest
    assert newest is not None and newest.path.name == "step-00000010.pt"


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 100)


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[content.index(bytes([30, 0, 0, 0])) + 8] ^= 1
    path.write_bytes(content)


def be_a_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (cut, r"step-00000030\.pt is not a checkpoint, or is truncated"),
        (flip, r"step-00000030\.pt is corrupt: the CRC-32 of its record \S*data/0 is wrong"),
        (be_a_pipe, r"step-00000030\.pt is a pipe; pass a regular file"),
    ],
)
def test_damaged_checkpoint_is_skipped_with_the_reason(spoil, message, tmp_path: Path):
    last = write(tmp_path, 10, 20, 30)[-1]
    spoil(last)
    newest, skipped = find_newest(tmp_path)
    assert newest is not None and newest.about["step"] == 20
    with pytest.raises(InputError, match=message):
        raise InputError(*skipped)
    with pytest.raises(InputError, match=message):
        open_checkpoint(last)


def test_folder_in_use_or_with_checkpoints_is_rejected(tmp_path: Path):
    folder = tmp_path / "new" / "deep"
    check_folder(folder)
    with closing(CheckpointFolder(folder)):
        for second in (CheckpointFolder, check_folder):
            with pytest.raises(InputError, match="deep is in use by another run; use another directory for check"):
                second(folder)
    check_folder(folder)
    write(folder, 10)
    with pytest.raises(InputError, match=r"already contains checkpoints, up to step-00000010.pt; .*--resume auto"):
        check_folder(folder)


def test_checkpoint_folder_must_be_a_directory(tmp_path: Path):
    (tmp_path / "checkpoints").touch()
    for use in (check_folder, CheckpointFolder):
        with pytest.raises(InputError, match="is not a directory"):
            use(tmp_path / "checkpoints")


def test_checkpoint_is_synced_before_it_is_renamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    done: list[str] = []
    fsync, replace = os.fsync, Path.replace

    def synced(handle: int) -> None:
        done.append(f"sync {Path(f'/proc/self/fd/{handle}').readlink().name[:9]}")
        fsync(handle)

    def renamed(path: Path, target: Path) -> None:
        done.append(f"name {target.suffix}")
        replace(path, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(Path, "replace", renamed)
    write(tmp_path / "checkpoints", 10)
    assert done[:3] == ["sync .ringlab-", "name .pt", "sync checkpoin"]


@pytest.mark.parametrize("kind", [OSError, KeyboardInterrupt])
def test_newest_checkpoint_survives_each_failing_system_call(kind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Each call of a write fails in turn, on a full disk or by an interrupt."""
    left = [-1]

    def failing(call):
        def or_fail(*arguments, **named):
            left[0] -= 1
            if left[0] == 0:
                raise kind(28, "No space left on device")
            return call(*arguments, **named)

        return or_fail

    for owner, name in ((os, "fsync"), (os, "open"), (Path, "replace"), (Path, "unlink")):
        monkeypatch.setattr(owner, name, failing(getattr(owner, name)))
    for calls in itertools.count(1):
        folder = tmp_path / str(calls)
        write(folder, 10, 20)
        checkpoints = CheckpointFolder(folder)
        left[0] = calls
        with suppress(kind):
            checkpoints.write(state_of(30))
        ended, left[0] = left[0] > 0, -1
        checkpoints.close()
        newest, skipped = find_newest(folder)
        assert newest is not None and newest.about["step"] in (20, 30) and not skipped
        if ended:
            break
    assert calls > 5 and len(names(folder)) == KEPT, "the last time none failed"


class Bomb:
    def __reduce__(self):
        return os.system, ("echo executed",)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"model": Bomb()}, r"reading it would execute posix\.system"),
        (pickle.dumps(Bomb()), "BadZipFile: File is not a zip file"),
        (None, "its content is compressed"),
        ([1], r"it contains \[1\]"),
        (state_of(10) | {"ranks": [{}]}, "it contains"),
    ],
    ids=["bomb", "plain bomb", "compressed", "list", "ranks"],
)
def test_hostile_checkpoint_is_rejected_without_executing_it(content, message, capfd, tmp_path):
    path = tmp_path / "a.pt"
    if content is None:
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("a/data.pkl", bytes(1 << 20))
    elif isinstance(content, bytes):
        path.write_bytes(content)
    else:
        torch.save(content, path)
    with pytest.raises(InputError, match=f"a.pt is not a checkpoint.*: {message}") as refused:
        open_checkpoint(path)
    assert "\n" not in str(refused.value) and "executed" not in capfd.readouterr().out
