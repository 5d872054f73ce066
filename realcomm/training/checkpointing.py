"""A training that writes checkpoints and goes on from one.

Their content is tensors, numbers and texts as ``torch.save`` writes them, read without executing any.
"""

import io
import math
import re
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from collectives.checks import check_path
from collectives.errors import InputError, RunFailed, describe_error
from collectives.training.workload import Training
from collectives.variables import is_first_rank
from realcomm.execution.group_memory import host_group
from realcomm.launching.status import set_status
from realcomm.launching.torchrun import under_torchrun
from realcomm.training.checkpoint_folder import (
    AUTO,
    Checkpoint,
    CheckpointFolder,
    Value,
    check_folder,
    find_newest,
    open_checkpoint,
    remove_remains,
)
from realcomm.training.datasets import Shard
from realcomm.training.observing import EpochRecord, Observed, Observer, State, StepRecord

PHASE = "checkpoint"
_NOT_ALLOWED = re.compile(r"(?:GLOBAL|global|function|class) (\S+\.\w+)")
_KEPT_OR_CHECKED = {"checkpoints", "checkpoint_every", "check_every", "inspect_every"}
_LOADED_ALIKE = {"data_folder", "download", "verify", "num_workers", "prefetch_factor", "pin_memory"}
_MAY_DIFFER = {"epochs", "compute", *_LOADED_ALIKE, *_KEPT_OR_CHECKED}
_IN_SYNC_NAME = {"gradient_sync", "buckets"}


def to_bytes(state: State) -> memoryview:
    """Return a state as the content of a file, which ``torch.load(..., weights_only=True)`` reads too."""
    file = io.BytesIO()
    torch.save(state, file)
    return file.getbuffer()


def from_bytes(content: bytes, path: Path) -> State:
    """Return the state in the content of a file, its tensors on the CPU.

    Nothing in it is executed and nothing is unpacked. Raise InputError, which names ``path``, for anything else than
    ``to_bytes`` writes.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            if any(entry.compress_type != zipfile.ZIP_STORED for entry in archive.infolist()):
                raise InputError(f"{path} is no checkpoint: what is in it is compressed")
        state = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    except InputError:
        raise
    except Exception as error:  # torch raises whatever its readers do
        raise InputError(f"{path} is no checkpoint: {_why(error)}") from error
    if not isinstance(state, dict) or not all(isinstance(key, str) for key in state):
        raise InputError(f"{path} is no checkpoint: it holds {type(state).__name__}, not the parts of a training")
    return state


def _why(error: Exception) -> str:
    refused = _NOT_ALLOWED.search(str(error))
    if refused:
        return f"to read it would execute {refused[1]}, which it never needs"
    return describe_error(error, None)


class Start(NamedTuple):
    """Where a training starts: at a checkpoint, or afresh; and what is to be said of it, in lines."""

    checkpoint: Path | None
    notes: list[str]


AFRESH = Start(None, [])


def find_start(training: Training, world_size: int, resume: str | Path | None) -> Start:
    """Return where a training of so many ranks starts; ``resume`` is a checkpoint, "auto" for the newest, or None.

    Raise InputError for a checkpoint of another training, one that is not whole, a folder that cannot be written, and
    one in which there are checkpoints already unless the training is resumed. Of processes that are ranks already only
    rank 0 looks; the others need not have the files, and get what it has read.
    """
    if not is_first_rank() or (dist.is_initialized() and dist.get_rank() != 0):
        return AFRESH
    folder, notes = folder_of(training), list[str]()
    if resume is None:
        if folder is not None:
            check_folder(folder)
        return AFRESH
    if resume != AUTO:
        checkpoint = open_checkpoint(check_path("resume", resume))
        checkpoint.check()
    else:
        if folder is None:
            raise InputError("resume is 'auto', and checkpoints, the folder to look in, is not given")
        newest, passed_over = find_newest(folder)
        notes = [f"warning: {reason}; passed over" for reason in passed_over]
        if newest is None:
            return Start(None, [*notes, f"{training.sync_name}: no whole checkpoint in {folder}, a fresh start"])
        checkpoint = newest
    last = check_start(checkpoint, training, world_size)
    then = "goes on from" if checkpoint.manifest.step < last else "was trained to its end, which is"
    note = f"{training.sync_name}: {then} {checkpoint}"
    if checkpoint.manifest.world_size != world_size:
        note += (
            f", on {world_size} ranks in place of {checkpoint.manifest.world_size}: each step has the same images, and "
            "sums round in another way"
        )
    return Start(checkpoint.path, [*notes, note])


def newest_note(training: Training) -> str:
    """Return what to do after a training broke: how it goes on; empty if it keeps no checkpoints."""
    folder = folder_of(training)
    if folder is None:
        return ""
    newest = find_newest(folder).newest
    if newest is None:
        return f"{training.sync_name}: it broke before its first checkpoint; --resume auto starts afresh"
    return f"{training.sync_name}: the newest checkpoint is {newest}; --resume auto goes on from it"


def check_start(checkpoint: Checkpoint, training: Training, world_size: int) -> int:
    """Return how many steps a training of so many ranks has, which is to go on from a checkpoint.

    Raise InputError if it cannot, as far as the manifest tells.
    """
    shard = Shard(training, 0, world_size)
    checkpoint.check_fits(describe_training(training, shard.images), world_size)
    last = shard.steps
    if checkpoint.manifest.step > last:
        raise InputError(f"{checkpoint} is beyond the end of {training.epochs} epochs, step {last}; raise epochs")
    return last


def describe_training(training: Training, images: int) -> dict[str, Value]:
    """Return by key what a training and its checkpoint must have in common; images are those that there are."""
    compared = {one.name for one in fields(training)} - _MAY_DIFFER - _IN_SYNC_NAME
    plain = {name: getattr(training, name) for name in sorted(compared)}
    found = {key: value if isinstance(value, str | int | float | None) else str(value) for key, value in plain.items()}
    return {"gradient_sync": training.sync_name, **found, "images": images}


def folder_of(training: Training) -> Path | None:
    """Return the folder of a training's checkpoints: one for each gradient sync, in that of the scenario.

    >>> folder_of(Training(None, checkpoints="runs"))
    PosixPath('runs/ddp')
    """
    if training.checkpoints is None:
        return None
    return Path(training.checkpoints) / (re.sub(r"[^\w.-]+", "_", training.sync_name).strip("._") or "sync")


@contextmanager
def removing_remains(training: Training) -> Iterator[None]:
    """Within the context, a launch that breaks or is interrupted leaves nothing of an unfinished checkpoint."""
    try:
        yield
    except BaseException:
        folder = folder_of(training)
        if folder is not None and not under_torchrun():  # there the writer may live yet
            remove_remains(folder)
        raise


class Checkpointing(Observer):
    """Loads a training from a checkpoint before its first step, and writes one every so many steps and each epoch.

    It is to be the last observer, so that what others write of a step is there before a checkpoint from which the step
    is not done again.
    """

    def __init__(self, training: Training, start: Path | None = None) -> None:
        self._path, self._every, self._start = folder_of(training), training.checkpoint_every, start
        self._folder: CheckpointFolder | None = None  # of rank 0

    def load(self, running: Observed) -> None:
        """Take the folder, and go on from the checkpoint if there is one."""
        set_status("opening the folder of checkpoints")
        if running.rank == 0 and self._path is not None:
            self._folder = CheckpointFolder(self._path)
        set_status("reading the checkpoint")
        content = _read(running, self._start) if self._start is not None and running.rank == 0 else b""
        content = _from_rank_0(content)
        if content:
            _load(running, content, self._start or Path("the checkpoint"))

    def step_done(self, running: Observed, record: StepRecord) -> None:
        """Write a checkpoint if so many steps are done; at the end of an epoch only when that was evaluated."""
        if self._every and running.done % self._every == 0 and not running.at_epoch_end:
            self._write(running, record.step)

    def epoch_done(self, running: Observed, record: EpochRecord) -> None:
        """Write a checkpoint."""
        self._write(running, record.step)

    def end(self, running: Observed, error: BaseException | None) -> None:
        """Let other runs have the folder."""
        if self._folder is not None:
            self._folder.close()

    def _write(self, running: Observed, step: int) -> None:
        """Gather what is each rank's own on rank 0, which writes it with what they share."""
        if self._path is None:
            return
        running.watch.current = PHASE
        set_status(f"training step {step}, {PHASE}")
        state, world_size = running.state_dict(), running.world_size
        # With local SGD each rank has weights and an optimizer of its own.
        part = state if running.training.sync_every > 1 else {"own": state["own"]}
        ranks: list[Any] | None = [None] * world_size if running.rank == 0 else None
        dist.gather_object(part, ranks, group=host_group())  # pickled by our own ranks
        if self._folder is not None:
            check_finite(running.model.state_dict(), running.done)
            shared = state["shared"]
            training = describe_training(running.training, running.images)
            content = to_bytes({"shared": shared, "ranks": ranks})
            self._folder.write(content, shared["step"], shared["epoch"], world_size, training)
        running.watch.current = ""


def check_finite(tensors: dict[str, torch.Tensor], steps: int) -> None:
    """Raise RunFailed for weights from which no training could go on: a checkpoint of them would replace a good one."""
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not math.isfinite(float(tensor.sum())) and not bool(tensor.isfinite().all()):
            raise RunFailed(f"after {steps} steps {name} is not finite; no checkpoint is written of that")


def _read(running: Observed, path: Path) -> bytes:
    """Return the content of a checkpoint. Raise InputError if it does not fit or is not whole."""
    checkpoint = open_checkpoint(path)
    check_start(checkpoint, running.training, running.world_size)
    return checkpoint.read()


def _load(running: Observed, content: bytes, path: Path) -> None:
    """Have this rank go on from the content of a checkpoint. Raise InputError if it does not fit."""
    state = from_bytes(content, path)  # a GPU gets this rank's part alone
    try:
        part = part_of_rank(state["ranks"], running.rank, running.world_size)
        running.load_state_dict({"shared": state["shared"], **part})
    except (LookupError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        raise InputError(f"{path} does not fit the training: {describe_error(error, None)}") from error


def part_of_rank(parts: list[State], rank: int, world_size: int) -> State:
    """Return the part of a checkpoint that is a rank's own, also where there are more or fewer ranks than it is of.

    Then each has an equal share of the examples seen and the mean of the losses. A rank that it knows goes on with its
    random numbers, a further one keeps those that it began with.

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


def _from_rank_0(content: bytes) -> bytes:
    """Return rank 0's content on all ranks; only rank 0 need be able to read a checkpoint."""
    group, is_first = host_group(), dist.get_rank() == 0
    size = torch.tensor([len(content)])
    dist.broadcast(size, 0, group=group)
    if not size:
        return b""
    received = torch.empty(int(size), dtype=torch.uint8)
    if is_first:
        received = torch.frombuffer(bytearray(content), dtype=torch.uint8)
    dist.broadcast(received, 0, group=group)
    return content if is_first else received.numpy().tobytes()
