"""Checkpoints of a training in a folder, found again: ``step-00000120.pt``, written whole or not at all.

Beside each is a manifest that says what is in it and its hash.
"""

import fcntl
import hashlib
import os
import re
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import ClassVar, NamedTuple, Self

from collectives.errors import InputError
from collectives.input_files import MEBIBYTE, FileBytes, check_input, read_bytes, reason
from collectives.output_files import TEMPORARY, check_output, sync_folder, write_bytes
from collectives.quoting import quote
from collectives.records.files import read_record, write_record

AUTO = "auto"  # go on from the newest whole checkpoint
NAME = re.compile(r"step-\d{8,}(\.\d+)?\.pt")
_PIECE = 8 * MEBIBYTE  # that is hashed at once

Value = str | int | float | bool | None  # of a key of a training
KEPT = 2
LOCK = ".lock"


@dataclass(frozen=True)
class Manifest:
    """What a checkpoint is of, how large it is and its hash. The file is named as it is, with ``.pt`` for ``.json``."""

    SCHEMA_VERSION: ClassVar[int] = 1

    serial: int  # counts the checkpoints of a folder as they were written
    step: int  # steps that were taken
    epoch: int  # epochs that were finished
    world_size: int
    training: dict[str, Value]  # what must be the same where it is resumed
    bytes: int
    sha256: str


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint that is there, with its manifest; whether it is whole, ``read`` and ``check`` tell."""

    path: Path
    manifest: Manifest

    def __str__(self) -> str:
        return f"{self.path} (step {self.manifest.step}, epoch {self.manifest.epoch + 1})"

    def check(self) -> None:
        """Raise InputError unless the file has the size and the hash of its manifest."""
        check_input(self.path, FileBytes.CHECKPOINT)
        digest, size = hashlib.sha256(), 0
        try:
            with self.path.open("rb") as file:
                while piece := file.read(_PIECE):
                    digest.update(piece)
                    size += len(piece)
        except OSError as error:
            raise InputError(f"{self.path}: {reason(error)}") from error
        self._compare(size, digest.hexdigest())

    def read(self) -> bytes:
        """Return its content. Raise InputError as ``check`` does."""
        content = read_bytes(self.path, FileBytes.CHECKPOINT)
        self._compare(len(content), hashlib.sha256(content).hexdigest())
        return content

    def _compare(self, size: int, sha256: str) -> None:
        if size != self.manifest.bytes:
            cut = "is cut off" if size < self.manifest.bytes else "has grown"
            raise InputError(f"{self.path} {cut}: it has {size} bytes, and its manifest says {self.manifest.bytes}")
        if sha256 != self.manifest.sha256:
            raise InputError(f"{self.path} is corrupt: its SHA-256 is not the one of its manifest")

    def check_fits(self, training: dict[str, Value], world_size: int) -> None:
        """Raise InputError if a training on so many ranks cannot go on from it; the message has the first difference.

        On another number of ranks it can where a step has as many images on all ranks together: a step's images are
        the same then, and only each rank's share of them is another.
        """
        there = dict(self.manifest.training)
        if self.manifest.world_size != world_size:
            self._check_other_ranks(training, world_size)
            there["batch_size"] = training.get("batch_size")
        for key in [*training, *(there.keys() - training.keys())]:
            if there.get(key) != training.get(key):
                raise InputError(
                    f"{self.path} is of another training: {key} is {quote(there.get(key))} there and "
                    f"{quote(training.get(key))} here; only the number of epochs may be another"
                )

    def _check_other_ranks(self, training: dict[str, Value], world_size: int) -> None:
        """Raise InputError if no training on another number of ranks goes on as this one would have."""
        ranks, batch, here = self.manifest.world_size, self.manifest.training.get("batch_size"), training["batch_size"]
        if int(training.get("sync_every") or 1) > 1:
            raise InputError(
                f"{self.path} is of {ranks} ranks, each with weights of its own (sync_every), and {world_size} are to "
                f"go on; start {ranks}"
            )
        if not isinstance(batch, int) or not isinstance(here, int) or ranks * batch != world_size * here:
            whole = f"{ranks * batch}" if isinstance(batch, int) else "unknown"
            raise InputError(
                f"{self.path} is of {ranks} ranks with batch_size {batch}, {whole} images a step, and {world_size} "
                f"ranks with {here} are to go on; start {ranks} ranks, or keep the images a step by "
                "[training] global_batch_size in place of batch_size"
            )


def manifest_of(path: Path) -> Path:
    """Return where the manifest of a checkpoint is.

    >>> manifest_of(Path("runs/step-00000120.pt")).name
    'step-00000120.json'
    """
    return path.with_suffix(".json")


def open_checkpoint(path: Path) -> Checkpoint:
    """Return the checkpoint in a file. Raise InputError if it is not there or has no manifest; its content is not read.

    >>> open_checkpoint(Path("step-00000120.pt"))
    Traceback (most recent call last):
    collectives.errors.InputError: step-00000120.pt: no such file
    """
    check_input(path, FileBytes.CHECKPOINT)
    manifest = manifest_of(path)
    if path == manifest:
        raise InputError(f"{path} is a manifest; name the checkpoint, {path.with_suffix('.pt').name}")
    if not manifest.exists():
        raise InputError(f"{path} has no manifest: {manifest.name} is to be beside it, as Ringlab writes it")
    return Checkpoint(path, read_record(manifest, Manifest, FileBytes.MANIFEST))


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

    def __init__(self, folder: Path) -> None:
        """Make the folder if it is not there, and remove what a writer that was killed has left.

        Raise InputError if it cannot be written or another run writes into it.
        """
        _check_writable(folder)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"{folder} cannot be made: {reason(error)}") from error
        self._folder, self._handle = folder, _lock(folder)
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
        left = KEPT - 1
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
