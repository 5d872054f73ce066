"""A checkpoint on the disk: ``step-00000120.pt``, and beside it the manifest that says what is in it and its hash."""

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from collectives.errors import InputError
from collectives.input_files import MEBIBYTE, check_input, read_bytes, reason
from collectives.quoting import quote
from collectives.records.files import read_record

MOST_BYTES = 64 << 30  # of a checkpoint
MOST_MANIFEST_BYTES = MEBIBYTE
NAME = re.compile(r"step-\d{8,}(\.\d+)?\.pt")
_PIECE = 8 * MEBIBYTE  # that is hashed at once

Value = str | int | float | bool | None  # of a key of a training


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
        check_input(self.path, MOST_BYTES)
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
        content = read_bytes(self.path, MOST_BYTES)
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
    check_input(path, MOST_BYTES)
    manifest = manifest_of(path)
    if path == manifest:
        raise InputError(f"{path} is a manifest; name the checkpoint, {path.with_suffix('.pt').name}")
    if not manifest.exists():
        raise InputError(f"{path} has no manifest: {manifest.name} is to be beside it, as Ringlab writes it")
    return Checkpoint(path, read_record(manifest, Manifest, MOST_MANIFEST_BYTES))
