"""Write checkpoints and resume from them.

A checkpoint is one file, ``step-00000120.pt``, which is either complete or absent. ``torch.load`` reads it without
executing code. The file contains a dict. ``about`` has the step, epoch, number of ranks and settings. ``shared`` is the
state that is equal on all ranks, and ``ranks`` lists each rank's own state.
"""

import io
import math
import re
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch.utils._pytree import tree_map_only

from collectives.checks import check_path
from collectives.errors import InputError, RunFailed, describe_error
from collectives.input_files import FileBytes, check_input
from collectives.output_files import TEMPORARY, check_output, write_bytes
from collectives.quoting import quote
from collectives.training.workload import RESUME_NEWEST, Training
from collectives.variables import is_first_rank
from realcomm.execution.group_memory import host_group
from realcomm.launching.status import set_status
from realcomm.launching.torchrun import under_torchrun
from realcomm.training.datasets import Shard
from realcomm.training.folder_lock import lock_folder
from realcomm.training.observing import EpochRecord, Observer, State, StepRecord
from realcomm.training.running import RunningTraining

KEPT = 2  # checkpoints that remain in a folder
LOCK = ".lock"
PHASE = "checkpoint"
_NOT_ALLOWED = re.compile(r"(?:GLOBAL|global|function|class) (\S+\.\w+)")
_LOADED_ALIKE = {"data_folder", "download", "num_workers", "prefetch_factor", "pin_memory"}
_KEPT_OR_CHECKED = {"checkpoints", "checkpoint_every", "check_every"}
_NOT_COMPARED = {"epochs", "compute", "gradient_sync", "buckets", *_LOADED_ALIKE, *_KEPT_OR_CHECKED}


@dataclass(frozen=True)
class Checkpoint:
    """A complete checkpoint file. Its tensors are read from the file on first use."""

    path: Path
    state: State

    @property
    def about(self) -> dict[str, Any]:
        """The step, the epoch, the world size, and the ``training`` settings that a resumed run must share."""
        about: dict[str, Any] = self.state["about"]
        return about

    def __str__(self) -> str:
        return f"{self.path} (step {self.about['step']}, epoch {self.about['epoch'] + 1})"

    def check_fits(self, training: dict[str, Any], world_size: int) -> None:
        """Check that a training run with these settings can resume from this checkpoint.

        Raise InputError if it cannot; the message names the first difference. The number of ranks may change if the
        global batch size stays the same and the run does not use local SGD.
        """
        ranks, settings = self.about["world_size"], dict(self.about["training"])
        if ranks != world_size:
            images, own_images = ranks * settings["batch_size"], world_size * training["batch_size"]
            if int(training.get("sync_every") or 1) > 1 or images != own_images:
                raise InputError(
                    f"{self.path} has {ranks} ranks and {images} images per step, but this run has {world_size} ranks "
                    f"and {own_images} images; start {ranks} ranks, or set training.global_batch_size = {images} "
                    "without sync_every"
                )
            settings["batch_size"] = training["batch_size"]
        for key in [*training, *(settings.keys() - training.keys())]:
            if settings.get(key) != training.get(key):
                raise InputError(
                    f"{self.path} is from a training run with {key} = {quote(settings.get(key))}, but this run has "
                    f"{quote(training.get(key))}; only epochs may change"
                )


def open_checkpoint(path: Path) -> Checkpoint:
    """Return the checkpoint in a file after verifying every byte. Raise InputError if the checkpoint is invalid.

    No code in the file is executed (``weights_only``), and compressed data is rejected.

    >>> open_checkpoint(Path("step-00000120.pt"))
    Traceback (most recent call last):
    collectives.errors.InputError: step-00000120.pt: no such file
    """
    check_input(path, FileBytes.CHECKPOINT)
    try:
        with zipfile.ZipFile(path) as archive:
            if any(entry.compress_type != zipfile.ZIP_STORED for entry in archive.infolist()):
                raise InputError(f"{path} is not a checkpoint: its content is compressed")
            if record := archive.testzip():  # torch.load itself checks no CRC
                raise InputError(f"{path} is corrupt: the CRC-32 of its record {record} is wrong")
        state = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
        if not _has_form(state):
            raise InputError(f"{path} is not a checkpoint of Ringlab: it contains {quote(state)}")
    except InputError:
        raise
    except Exception as error:  # torch raises many kinds of exceptions
        refused = _NOT_ALLOWED.search(str(error))
        why = f"reading it would execute {refused[1]}" if refused else describe_error(error, None)
        raise InputError(f"{path} is not a checkpoint, or is truncated: {why}") from error
    return Checkpoint(path, state)


def _has_form(state: object) -> bool:
    if not isinstance(state, dict) or not all(isinstance(state.get(key), dict) for key in ("about", "shared")):
        return False
    about, ranks = state["about"], state.get("ranks")
    if not isinstance(about.get("training"), dict) or not isinstance(ranks, list):
        return False
    counts = [*(about.get(key) for key in ("step", "epoch", "world_size")), about["training"].get("batch_size")]
    return all(type(count) is int and count >= 0 for count in counts) and len(ranks) == about["world_size"]


class SearchedFolder(NamedTuple):
    """A folder's newest complete checkpoint, or None, and an error message for each newer file that is invalid."""

    newest: Checkpoint | None
    skipped: list[str]


def find_newest(folder: Path) -> SearchedFolder:
    """Return a folder's newest complete checkpoint. The folder may be missing. Raise InputError if it is a file.

    >>> find_newest(Path("nowhere"))
    SearchedFolder(newest=None, skipped=[])
    """
    skipped = list[str]()
    for path in _newest_first(folder):
        try:
            return SearchedFolder(open_checkpoint(path), skipped)
        except InputError as error:
            skipped.append(str(error))
    return SearchedFolder(None, skipped)


def _newest_first(folder: Path) -> list[Path]:
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is not a directory; pass a directory for checkpoints")
    return sorted(folder.glob("step-*.pt"), key=lambda path: (path.stat().st_mtime_ns, path.name), reverse=True)


def check_folder(folder: Path) -> None:
    """Check that ``folder`` is writable and contains no checkpoints. Raise InputError otherwise."""
    existing = _newest_first(folder)
    if folder.exists():
        CheckpointFolder(folder).close()
    if existing:
        raise InputError(
            f"{folder} already contains checkpoints, up to {existing[0].name}; resume them with --resume auto, or use "
            "another directory"
        )


class CheckpointFolder:
    """A folder locked by this process for writing checkpoints, until it is closed or the process exits."""

    def __init__(self, folder: Path) -> None:
        """Create and lock the folder, and delete files that a killed writer left. Raise InputError if that fails."""
        self.folder, self._lock = folder, lock_folder(folder, LOCK, "use another directory for checkpoints")
        for left in folder.glob(f"{TEMPORARY}*"):
            left.unlink(missing_ok=True)

    def write(self, state: State) -> Path:
        """Write a checkpoint to disk, then delete all but the newest ``KEPT``. Return its path."""
        path, file = self.folder / f"step-{state['about']['step']:08d}.pt", io.BytesIO()
        torch.save(state, file)
        write_bytes(path, file.getbuffer(), durable=True)
        for old in _newest_first(self.folder)[KEPT:]:
            old.unlink(missing_ok=True)
        return path

    def close(self) -> None:
        self._lock.release()


class Start(NamedTuple):
    """The checkpoint from which a training run resumes, or None for a fresh start, and notes to print."""

    checkpoint: Path | None
    notes: list[str]


FRESH_START = Start(None, [])


def find_start(training: Training, world_size: int, resume: str | Path | None) -> Start:
    """Find the checkpoint from which a training run resumes, and check that it belongs to the run.

    ``resume`` is a checkpoint's path, "auto" for the newest one, or None for a fresh start. If this process is a rank,
    only rank 0 reads the folder; other ranks return a fresh start. Raise InputError if the checkpoint is incomplete or
    belongs to another training run, or if the folder is not writable. Without ``resume``, also raise InputError if the
    folder contains checkpoints.
    """
    if not is_first_rank() or (dist.is_initialized() and dist.get_rank() != 0):
        return FRESH_START
    folder, notes = folder_of(training), list[str]()
    if folder is not None:
        check_output(folder / "step-00000000.pt")
    if resume is None:
        if folder is not None:
            check_folder(folder)
        return FRESH_START
    if resume != RESUME_NEWEST:
        checkpoint: Checkpoint | None = open_checkpoint(check_path("resume", resume))
    else:
        if folder is None:
            raise InputError("resume = 'auto' requires training.checkpoints, the directory to search")
        checkpoint, skipped = find_newest(folder)
        notes = [f"warning: {why}; skipped" for why in skipped]
    if checkpoint is None:
        return Start(None, [*notes, f"{training.sync_name}: no complete checkpoint in {folder}; starting afresh"])
    last, ranks = check_start(checkpoint, training, world_size), checkpoint.about["world_size"]
    then = "resumes from" if checkpoint.about["step"] < last else "has finished training at"
    note = f"{training.sync_name}: {then} {checkpoint}"
    if ranks != world_size:
        note += f", on {world_size} ranks instead of {ranks}: steps have the same images, but sums round differently"
    return Start(checkpoint.path, [*notes, note])


def newest_note(training: Training) -> str:
    """Return a note on how to resume a failed training run, or "" if the run writes no checkpoints."""
    folder = folder_of(training)
    if folder is None:
        return ""
    newest = find_newest(folder).newest
    if newest is None:
        return f"{training.sync_name}: failed before its first checkpoint; --resume auto starts afresh"
    return f"{training.sync_name}: the newest checkpoint is {newest}; resume it with --resume auto"


def check_start(checkpoint: Checkpoint, training: Training, world_size: int) -> int:
    """Check that a training run can resume from a checkpoint, and return its total number of steps. Raise InputError if
    not.
    """
    shard = Shard(training, 0, world_size)
    checkpoint.check_fits(describe_training(training, shard.images), world_size)
    if checkpoint.about["step"] > shard.steps:
        raise InputError(
            f"{checkpoint} is beyond step {shard.steps}, the end of {training.epochs} epochs; increase training.epochs"
        )
    return shard.steps


def describe_training(training: Training, images: int) -> dict[str, Any]:
    """Return the settings that must not change when a run resumes. ``images`` is the size of the data set."""
    compared = sorted({field.name for field in fields(training)} - _NOT_COMPARED)
    plain = {name: getattr(training, name) for name in compared}
    settings = {
        key: value if isinstance(value, str | int | float | None) else str(value) for key, value in plain.items()
    }
    return {"gradient_sync": training.sync_name, **settings, "images": images}


def folder_of(training: Training) -> Path | None:
    """Return the folder of a training run's checkpoints, or None if it writes none.

    Each gradient sync has its own subfolder of ``training.checkpoints``.

    >>> folder_of(Training(None, checkpoints="runs"))
    PosixPath('runs/ddp')
    """
    if training.checkpoints is None:
        return None
    return Path(training.checkpoints) / (re.sub(r"[^\w.-]+", "_", training.sync_name).strip("._") or "sync")


@contextmanager
def removing_remains(training: Training) -> Iterator[None]:
    """Within the context, delete an unfinished checkpoint if the launch fails or is interrupted."""
    try:
        yield
    except BaseException:
        folder = folder_of(training)
        if folder is not None and folder.is_dir() and not under_torchrun():  # the writer may still be alive there
            with suppress(InputError):  # locked by another run
                CheckpointFolder(folder).close()
        raise


class Checkpointing(Observer):
    """Loads a checkpoint before the first step. Writes one every ``checkpoint_every`` steps and after each epoch.

    This must be the last observer. A step's metrics are then on disk before its checkpoint, and a resumed run does not
    write these metrics again.
    """

    def __init__(self, training: Training, start: Path | None = None) -> None:
        self._path, self._every, self._start = folder_of(training), training.checkpoint_every, start
        self._folder: CheckpointFolder | None = None  # only on rank 0

    def load(self, running: RunningTraining) -> None:
        """Lock the folder, and load the checkpoint if there is one. Only rank 0 reads the file."""
        set_status("opening the checkpoint folder")
        if running.rank == 0 and self._path is not None:
            self._folder = CheckpointFolder(self._path)
        set_status("reading the checkpoint")
        states: list[State | None] = [None]
        if running.rank == 0 and self._start is not None:
            checkpoint = open_checkpoint(self._start)
            check_start(checkpoint, running.training, running.world_size)
            states = [checkpoint.state]
        dist.broadcast_object_list(states, 0, group=host_group())  # pickled by our own rank 0
        if (state := states[0]) is None:
            return
        try:
            part = part_of_rank(state["ranks"], running.rank, running.world_size)
            running.load_state_dict({"shared": state["shared"], **part})
        except (LookupError, TypeError, ValueError, AttributeError, RuntimeError) as error:
            raise InputError(
                f"{self._start} does not match this training run: {describe_error(error, None)}"
            ) from error

    def step_done(self, running: RunningTraining, record: StepRecord) -> None:
        """Write a checkpoint every ``checkpoint_every`` steps. At an epoch's end, ``epoch_done`` does so instead."""
        if self._every and running.done % self._every == 0 and not running.at_epoch_end:
            self._write(running, record.step)

    def epoch_done(self, running: RunningTraining, record: EpochRecord) -> None:
        self._write(running, record.step)

    def end(self, running: RunningTraining, error: BaseException | None) -> None:
        if self._folder is not None:
            self._folder.close()

    def _write(self, running: RunningTraining, step: int) -> None:
        """Gather each rank's own state on rank 0, which writes a checkpoint with these states and the shared state."""
        if self._path is None:
            return
        running.watch.current = PHASE
        set_status(f"training step {step}, {PHASE}")
        state, world_size = running.state_dict(), running.world_size
        # With local SGD each rank has its own weights and optimizer.
        part = state if running.training.sync_every > 1 else {"own": state["own"]}
        # otherwise rank 0 would receive it on its GPU
        part = tree_map_only(torch.Tensor, lambda tensor: tensor.cpu(), part)
        ranks: list[Any] | None = [None] * world_size if running.rank == 0 else None
        dist.gather_object(part, ranks, group=host_group())  # pickled by our own ranks
        if self._folder is not None:
            check_finite(running.model.state_dict(), running.done)
            shared, training = state["shared"], describe_training(running.training, running.images)
            about = {"step": shared["step"], "epoch": shared["epoch"], "world_size": world_size, "training": training}
            try:
                self._folder.write({"about": about, "shared": shared, "ranks": ranks})
            except InputError as error:  # it could be written when the training began
                raise RunFailed(str(error)) from error
        running.watch.current = ""


def check_finite(tensors: dict[str, torch.Tensor], steps: int) -> None:
    """Raise RunFailed if weights are NaN or infinite, so that no checkpoint of them replaces a good one."""
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not math.isfinite(float(tensor.sum())) and not bool(tensor.isfinite().all()):
            raise RunFailed(f"{name} is not finite after {steps} steps; no checkpoint was written")


def part_of_rank(parts: list[State], rank: int, world_size: int) -> State:
    """Return a rank's own state from a checkpoint. ``parts`` has the states of the ranks that wrote the checkpoint.

    If their number differs from ``world_size``, each rank gets an equal share of the examples seen and the mean of the
    losses. Ranks that existed in the old run restore their random states. New ranks keep their initial ones.

    >>> parts = [{"own": {"seen": 8, "loss": loss, "random": name}} for loss, name in ((1.0, "a"), (2.0, "b"))]
    >>> part_of_rank(parts, rank=1, world_size=2)
    {'own': {'seen': 8, 'loss': 2.0, 'random': 'b'}}
    >>> part_of_rank(parts, rank=3, world_size=4)
    {'own': {'seen': 4, 'loss': 1.5, 'random': None}}
    """
    if len(parts) == world_size:
        return parts[rank]
    seen, losses = sum(part["own"]["seen"] for part in parts), [part["own"]["loss"] for part in parts]
    random = parts[rank]["own"]["random"] if rank < len(parts) else None
    return {"own": {"seen": seen // world_size, "loss": sum(losses) / len(losses), "random": random}}
