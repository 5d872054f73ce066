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
        """Raise InputError if it is of another training or number of ranks; the message has the first difference."""
        found = self.manifest
        if found.world_size != world_size:
            raise InputError(
                f"{self.path} is of {found.world_size} ranks, and {world_size} are to go on; each rank has its own "
                f"share of the images and its own random state, so start {found.world_size}"
            )
        for key in [*training, *(found.training.keys() - training.keys())]:
            there, here = found.training.get(key), training.get(key)
            if there != here:
                raise InputError(
                    f"{self.path} is of another training: {key} is {quote(there)} there and {quote(here)} here; "
                    "only the number of epochs may be another"
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
