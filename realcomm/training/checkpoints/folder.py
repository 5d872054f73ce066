"""A folder of checkpoints: one run writes into it, the last two are kept, and the newest whole one is found.

A checkpoint is there as soon as its ``.pt`` has its name, which is the last thing that happens: its manifest is there
before, and both are on the disk. What a writer that was killed leaves is a file whose name begins with ``.ringlab-``,
or a manifest alone; who started it removes that, and the next writer does. No file is ever written over.
"""

import fcntl
import hashlib
import os
import stat
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from collectives.errors import InputError
from collectives.input_files import reason
from collectives.output_files import TEMPORARY, check_output, sync_folder, write_bytes
from collectives.records.files import write_record
from realcomm.training.checkpoints.manifest import NAME, Checkpoint, Manifest, Value, manifest_of, open_checkpoint

KEPT = 2
LOCK = ".lock"


class Found(NamedTuple):
    """The newest whole checkpoint of a folder, None if there is none, and why each newer one was passed over."""

    newest: Checkpoint | None
    passed_over: list[str]


def find_newest(folder: Path) -> Found:
    """Return the newest whole checkpoint of a folder, which need not be there.

    Raise InputError for what is no folder or cannot be looked into.

    >>> find_newest(Path("nowhere"))
    Found(newest=None, passed_over=[])
    """
    checkpoints, passed_over = _list(folder)
    for checkpoint in checkpoints:
        try:
            checkpoint.check()
        except InputError as error:
            passed_over.append(str(error))
        else:
            return Found(checkpoint, passed_over)
    return Found(None, passed_over)


def check_folder(folder: Path) -> None:
    """Raise InputError unless checkpoints can be written into ``folder``, by no other run, and there are none yet."""
    _check_writable(folder)
    if not folder.exists():
        return
    os.close(_lock(folder))
    checkpoints, _ = _list(folder)
    if checkpoints:
        raise InputError(
            f"{folder} has checkpoints of a training, up to step {checkpoints[0].manifest.step}; "
            "go on from them with --resume auto, or name another folder"
        )


class CheckpointFolder:
    """A folder into which this process alone writes checkpoints, until it is closed or the process ends."""

    def __init__(self, folder: Path, kept: int = KEPT) -> None:
        """Make the folder if it is not there, and remove what a writer that was killed has left.

        Raise InputError if it cannot be written or another run writes into it.
        """
        _check_writable(folder)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"{folder} cannot be made: {reason(error)}") from error
        self._folder, self._kept, self._handle = folder, kept, _lock(folder)
        self._whole: set[Path] = set()  # known to be
        _remove_remains(folder)

    def write(
        self, content: bytes | memoryview, step: int, epoch: int, world_size: int, training: dict[str, Value]
    ) -> Path:
        """Write a checkpoint, then remove all older whole ones but the last; return its file.

        It is on the disk when this returns. Raise OSError where the system fails; what was whole before still is.
        """
        before, _ = _list(self._folder)
        serial = 1 + max((one.manifest.serial for one in before), default=0)
        path, digest = self._free_name(step), hashlib.sha256(content).hexdigest()
        manifest = Manifest(serial, step, epoch, world_size, training, len(content), digest)
        try:
            write_record(manifest_of(path), manifest, indent=1, durable=True)
            write_bytes(path, content, durable=True)
        except BaseException:
            if not path.exists():
                with suppress(OSError):
                    manifest_of(path).unlink(missing_ok=True)
            raise
        self._whole.add(path)
        self._remove_older(before)
        return path

    def _free_name(self, step: int) -> Path:
        """Return the name for a step; another one if a run that was at this step before has left it there."""
        name, number = f"step-{step:08d}", 1
        path = self._folder / f"{name}.pt"
        while path.exists() or manifest_of(path).exists():
            number += 1
            path = self._folder / f"{name}.{number}.pt"
        return path

    def _remove_older(self, before: list[Checkpoint]) -> None:
        """Remove of those that were there before all whole ones but the newest; corrupt ones are for people to see."""
        left = self._kept - 1
        for checkpoint in before:
            if not self._is_whole(checkpoint):
                continue
            if left > 0:
                left -= 1
                continue
            checkpoint.path.unlink(missing_ok=True)
            manifest_of(checkpoint.path).unlink(missing_ok=True)
            self._whole.discard(checkpoint.path)
        sync_folder(self._folder)

    def _is_whole(self, checkpoint: Checkpoint) -> bool:
        if checkpoint.path not in self._whole:
            try:
                checkpoint.check()
            except InputError:
                return False
            self._whole.add(checkpoint.path)
        return True

    def close(self) -> None:
        """Let other runs write into the folder."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def _check_writable(folder: Path) -> None:
    """Raise InputError unless files can be made in ``folder``, or the folder itself."""
    if os.path.lexists(folder) and not folder.is_dir():
        raise InputError(f"{folder} is no folder, and checkpoints need one; name another")
    check_output(folder / "step-00000000.pt")


def _list(folder: Path) -> tuple[list[Checkpoint], list[str]]:
    """Return the checkpoints of a folder, the newest first, and what is wrong with files that look like one."""
    found, wrong = list[Checkpoint](), list[str]()
    try:
        names = sorted(entry.name for entry in folder.iterdir() if NAME.fullmatch(entry.name))
    except FileNotFoundError:
        return [], []
    except OSError as error:
        raise InputError(f"{folder}, the folder of checkpoints: {reason(error)}") from error
    for name in names:
        try:
            found.append(open_checkpoint(folder / name))
        except InputError as error:
            wrong.append(str(error))
    return sorted(found, key=lambda one: one.manifest.serial, reverse=True), wrong


def _lock(folder: Path) -> int:
    """Return the lock of a folder, an open file. Raise InputError if another run has it."""
    path = folder / LOCK
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise InputError(f"{folder}, the folder of checkpoints: {path.name}: {reason(error)}") from error
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise InputError(f"{path} is no regular file; remove it, or name another folder for checkpoints")
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise InputError(f"another run writes its checkpoints into {folder}; name another folder") from None
    except BaseException:
        os.close(handle)
        raise
    return handle


def remove_remains(folder: Path) -> None:
    """Remove what a writer that was killed has left in a folder, which need not be there, unless another run has it.

    >>> remove_remains(Path("nowhere"))
    """
    with suppress(InputError, OSError):
        if folder.is_dir():
            handle = _lock(folder)
            try:
                _remove_remains(folder)
            finally:
                os.close(handle)


def _remove_remains(folder: Path) -> None:
    """Remove what a writer that was killed has left: files that are not whole, and manifests without a checkpoint."""
    for entry in folder.iterdir():
        is_alone = (
            NAME.fullmatch(f"{entry.stem}.pt") and entry.suffix == ".json" and not entry.with_suffix(".pt").exists()
        )
        if entry.name.startswith(TEMPORARY) or is_alone:
            with suppress(OSError):
                entry.unlink()
