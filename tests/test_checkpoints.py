"""Checkpoints: whole or not there, whatever ends their writer; found again, and refused with the reason."""

import hashlib
import io
import os
import pickle
import zipfile
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from command_line import run_python

from collectives import InputError
from realcomm.training.checkpoint_folder import (
    KEPT,
    CheckpointFolder,
    check_folder,
    find_newest,
    manifest_of,
    open_checkpoint,
)
from realcomm.training.checkpointing import from_bytes, to_bytes
from realcomm.training.observing import State

TRAINING = {"model": "resnet18", "batch_size": 32}


def write(folder: Path, *steps: int, content: bytes = b"state") -> list[Path]:
    with CheckpointFolder(folder) as open_folder:
        return [open_folder.write(content + b"%d" % step, step, 0, 2, TRAINING) for step in steps]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name != ".lock")


def test_the_last_two_are_kept_and_the_newest_is_found(tmp_path: Path):
    write(tmp_path, 10, 20, 30)
    assert names(tmp_path) == [f"step-000000{step}.{suffix}" for step in (20, 30) for suffix in ("json", "pt")]
    newest, passed_over = find_newest(tmp_path)
    assert newest is not None and passed_over == []
    assert (newest.path.name, newest.read(), newest.manifest.step) == ("step-00000030.pt", b"state30", 30)
    assert newest.manifest.sha256 == hashlib.sha256(b"state30").hexdigest()


def test_a_run_that_goes_back_to_an_earlier_step_writes_over_nothing_and_is_the_newest(tmp_path: Path):
    write(tmp_path, 10, 20)
    assert [path.name for path in write(tmp_path, 10)] == ["step-00000010.2.pt"]
    newest = find_newest(tmp_path).newest
    assert newest is not None and (newest.path.name, newest.manifest.serial) == ("step-00000010.2.pt", 3)


def cut(path: Path) -> None:
    os.truncate(path, 3)


def flip(path: Path) -> None:
    path.write_bytes(b"S" + path.read_bytes()[1:])


def lose_manifest(path: Path) -> None:
    manifest_of(path).unlink()


def spoil_manifest(path: Path) -> None:
    manifest_of(path).write_text('{"schema_version": 1, "serial": "many"}')


def be_a_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (cut, r"step-00000030\.pt is cut off: it has 3 bytes, and its manifest says 7"),
        (flip, r"step-00000030\.pt is corrupt: its SHA-256 is not the one of its manifest"),
        (lose_manifest, r"step-00000030\.pt has no manifest"),
        (spoil_manifest, r"step-00000030\.json: not a manifest: serial: "),
        (be_a_pipe, r"step-00000030\.pt is a pipe; a regular file is needed"),
    ],
)
def test_what_is_not_whole_is_passed_over_with_the_reason(spoil, message, tmp_path: Path):
    last = write(tmp_path, 10, 20, 30)[-1]
    spoil(last)
    newest, passed_over = find_newest(tmp_path)
    assert newest is not None and newest.manifest.step == 20
    with pytest.raises(InputError, match=message):
        raise InputError(*passed_over)
    with pytest.raises(InputError, match=message):
        open_checkpoint(last).read()
    write(tmp_path, 40)
    assert names(tmp_path).count("step-00000020.pt") == 1, "two whole ones stay, the spoilt one is not one of them"


@pytest.mark.parametrize(
    ("training", "world_size", "message"),
    [
        (TRAINING, 3, "is of 2 ranks with batch_size 32, 64 images a step, and 3 ranks with 32 are to go on"),
        (TRAINING | {"model": "resnet34"}, 2, "another training: model is 'resnet18' there and 'resnet34' here"),
        ({"model": "resnet18"}, 2, "another training: batch_size is 32 there and None here"),
    ],
)
def test_another_training_is_refused(training, world_size, message, tmp_path: Path):
    checkpoint = open_checkpoint(write(tmp_path, 10)[0])
    checkpoint.check_fits(TRAINING, 2)
    with pytest.raises(InputError, match=message):
        checkpoint.check_fits(training, world_size)


def test_one_run_at_a_time_writes_into_a_folder_that_had_none(tmp_path: Path):
    folder = tmp_path / "new" / "deep"
    check_folder(folder)
    with CheckpointFolder(folder):
        for second in (CheckpointFolder, check_folder):
            with pytest.raises(
                InputError, match=r"another run writes its checkpoints into .*deep; name another folder"
            ):
                second(folder)
    check_folder(folder)
    write(folder, 10)
    with pytest.raises(InputError, match=r"has checkpoints of a training, up to step 10; .*--resume auto"):
        check_folder(folder)


def a_file(path: Path) -> None:
    path.write_text("")


def a_lock_that_is_a_pipe(path: Path) -> None:
    path.mkdir()
    os.mkfifo(path / ".lock")


def a_lock_that_leads_elsewhere(path: Path) -> None:
    path.mkdir()
    (path / ".lock").symlink_to("/dev/null")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (a_file, "is no folder, and checkpoints need one; name another"),
        (os.mkfifo, "is no folder, and checkpoints need one; name another"),
        (a_lock_that_is_a_pipe, "is no regular file"),
        (a_lock_that_leads_elsewhere, r"\.lock: Too many levels of symbolic links"),
        (lambda path: path.symlink_to("/proc/self"), "the kernel makes up"),
    ],
)
def test_what_is_no_folder_is_refused(make, message, tmp_path: Path):
    path = tmp_path / "checkpoints"
    make(path)
    for use in (check_folder, CheckpointFolder):
        with pytest.raises(InputError, match=message):
            use(path)


def test_a_checkpoint_is_on_the_disk_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    done: list[str] = []
    fsync, replace = os.fsync, Path.replace

    def name(handle: int) -> str:
        return Path(f"/proc/self/fd/{handle}").readlink().name

    def synced(handle: int) -> None:
        done.append(f"sync {name(handle)[:9]}")
        fsync(handle)

    def named(path: Path, target: Path) -> None:
        done.append(f"name {target.suffix}")
        replace(path, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(Path, "replace", named)
    write(tmp_path / "checkpoints", 10)
    one = ["sync .ringlab-", "name {}", "sync checkpoin"]
    assert done[:6] == [text.format(suffix) for suffix in (".json", ".pt") for text in one]


KILLED = """
import os, random, signal, sys, time
from pathlib import Path
from realcomm.training.checkpoint_folder import CheckpointFolder, find_newest

folder, random = Path(sys.argv[1]), random.Random(1)
content = {step: step.to_bytes(4, "big") * 5_000 for step in range(4)}

def write_until_killed(told):
    with CheckpointFolder(folder) as checkpoints:
        step = 0
        while True:
            checkpoints.write(content[step % 4], step % 4, 0, 2, {})
            os.write(told, b"1")
            step += 1

complete, last = 0, 0
for _ in range(100):
    read, told = os.pipe()
    child = os.fork()
    if not child:
        write_until_killed(told)
    os.close(told)
    os.read(read, 1)  # the first of this writer is there
    time.sleep(random.random() * 0.004)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    complete += 1 + sum(map(len, iter(lambda: os.read(read, 4096), b"")))
    os.close(read)
    newest, passed_over = find_newest(folder)
    assert newest is not None and not passed_over, passed_over
    assert newest.read() == content[newest.manifest.step]
    assert newest.manifest.serial in (complete + last, complete + last + 1), "the newest is what was written last"
    last = newest.manifest.serial - complete
    CheckpointFolder(folder).close()
    left = sorted(path.name for path in folder.iterdir() if path.suffix != ".json")
    assert len(left) <= 4 and left[0] == ".lock" and all(name.startswith("step-") for name in left[1:]), left
print("survived")
"""


def test_a_writer_that_is_killed_a_hundred_times_leaves_only_whole_checkpoints(tmp_path: Path):
    done = run_python("-c", KILLED, tmp_path)
    assert (done.returncode, done.stdout) == (0, "survived\n"), done.stderr


@pytest.mark.parametrize("kind", [OSError, KeyboardInterrupt])
def test_whichever_call_fails_the_newest_whole_one_is_found(kind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A disk that is full, or an interrupt, at each of the calls that writing takes, one after the other."""
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
    tried = 0
    while left[0] <= 0:
        folder, tried = tmp_path / str(tried), tried + 1
        left[0] = -1
        write(folder, 10, 20)
        with CheckpointFolder(folder) as checkpoints:
            left[0] = tried
            with suppress(kind):
                checkpoints.write(b"state30", 30, 0, 2, TRAINING)
        newest, passed_over = find_newest(folder)
        assert newest is not None and newest.manifest.step in (20, 30) and not passed_over
    assert tried > 10
    assert len(names(folder)) == 2 * KEPT, "the last time none failed"


class Bomb:
    def __reduce__(self):
        return os.system, ("echo executed",)


def compressed() -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a/data.pkl", bytes(1 << 20))
    return file.getvalue()


def saved(value: object) -> bytes:
    file = io.BytesIO()
    torch.save(value, file)
    return file.getvalue()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (lambda: saved({"model": Bomb()}), r"to read it would execute posix\.system, which it never needs"),
        (lambda: pickle.dumps(Bomb()), "BadZipFile: File is not a zip file"),
        (compressed, "what is in it is compressed"),
        (lambda: saved([1]), "it holds list, not the parts of a training"),
        (lambda: b"", "BadZipFile"),
    ],
    ids=["bomb", "plain bomb", "compressed", "list", "empty"],
)
def test_what_is_no_checkpoint_is_refused_and_nothing_of_it_is_executed(content, message, capfd):
    with pytest.raises(InputError, match=f"a.pt is no checkpoint: {message}") as refused:
        from_bytes(content(), Path("a.pt"))
    assert "\n" not in str(refused.value) and "executed" not in capfd.readouterr().out


def test_a_state_is_read_as_it_was_written():
    state: State = {"model": {"w": torch.rand(3)}, "optimizer": {"state": {0: {"momentum": torch.rand(2)}}}, "step": 3}
    read = from_bytes(bytes(to_bytes(state)), Path("a.pt"))
    assert read["step"] == 3 and read["optimizer"]["state"][0]["momentum"].equal(
        state["optimizer"]["state"][0]["momentum"]
    )
    assert read["model"]["w"].equal(state["model"]["w"])
