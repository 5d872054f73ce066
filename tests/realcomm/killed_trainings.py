"""Kill the ranks of a small training at random times with random signals, and resume it until it is done.

The weights at the end equal those of an undisturbed training bit for bit, and each failure names the killed rank.
"""

import random
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from threading import Event, Thread
from typing import Any, NamedTuple

import psutil
import torch
from torch.utils._pytree import keystr, tree_flatten_with_path, tree_map_only

import realcomm
from collectives.catalogue import find_algorithm
from collectives.training.workload import RESUME_NEWEST, Buckets, Training
from realcomm.launching.failures import LaunchFailed, describe_signal
from realcomm.launching.server import server_pid
from realcomm.training.checkpoints import find_newest
from realcomm.watching.log_folder import METRICS, read_metrics
from realcomm.watching.watch import Watch
from simcomm import this_machine

MODEL = f"{Path(__file__).parent / 'faulty_model.py'}:build"
SIGNALS = (signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, 40)
RING = find_algorithm("all_reduce/ring")
RECIPES: dict[str, dict[str, Any]] = {
    "ring": {"gradient_sync": RING},
    "adamw": {"gradient_sync": RING, "optimizer": "adamw", "clip_norm": 0.5, "warm_up": 3},
    "ddp": {"gradient_sync": None},
    "overlapped": {"gradient_sync": RING, "buckets": Buckets(), "accumulate": 2},
    "local": {"gradient_sync": find_algorithm("all_reduce/naive"), "sync_every": 2},
    "loaded ahead": {"gradient_sync": RING, "num_workers": 1, "random_crop": 4, "flip": True},
}
MOST_KILLS = 4  # of a training


class Tried(NamedTuple):
    """The result of a seed: the kills that hit a rank, the kills that a failure named, and problems."""

    kills: int
    named: int
    problems: list[str]


def rank_processes() -> list[int]:
    """Return the rank processes forked by this process's server, by rank."""
    pid = server_pid()
    if pid is None:
        return []
    with suppress(psutil.Error):
        return sorted(child.pid for child in psutil.Process(pid).children())
    return []


@contextmanager
def killing(
    rank: int, ranks: int, number: int, delay_s: float, file: Path | None = None, rows: int = 0
) -> Iterator[list[int]]:
    """Send a rank a signal after a delay, and not before ``file`` has ``rows`` rows; list the process that got it."""
    sent, is_over = list[int](), Event()

    def kill() -> None:
        while len(processes := rank_processes()) < ranks or (file is not None and count_rows(file) < rows):
            if is_over.wait(0.002):
                return
        if not is_over.wait(delay_s):
            with suppress(psutil.Error):
                psutil.Process(processes[rank]).send_signal(number)
                sent.append(processes[rank])

    thread = Thread(target=kill)
    thread.start()
    try:
        yield sent
    finally:
        is_over.set()
        thread.join()


def count_rows(file: Path) -> int:
    return file.read_bytes().count(b"\n") if file.exists() else 0


def train(name: str, ranks: int, every: int, folder: Path) -> None:
    """Train for two epochs from the newest checkpoint in a folder, if any; write one every few steps."""
    storage = {"checkpoints": folder / "kept", "checkpoint_every": every}
    training = Training(**RECIPES[name], **storage, model=MODEL, batch_size=4, epochs=2, images=60)
    with Watch(folder / "logs").observing(resumes=True) as observers:
        realcomm.train(training, this_machine(ranks), resume=RESUME_NEWEST, observers=observers, timeout=60.0)


class Learned(NamedTuple):
    state: dict[str, Any]  # the last checkpoint
    metrics: list[tuple[Any, ...]]


def learned(folder: Path) -> Learned:
    [checkpoints] = (folder / "kept").iterdir()
    newest = find_newest(checkpoints).newest
    assert newest is not None
    names = ("kind", "step", "epoch", "loss", "learning_rate", "test_accuracy", "examples_seen")
    rows = [tuple(row.get(name) for name in names) for row in read_metrics(folder / "logs" / METRICS)]
    state = tree_map_only(torch.Tensor, torch.clone, newest.state)  # independent of the file
    return Learned(state, rows)


@cache
def undisturbed(name: str, ranks: int, every: int) -> Learned:
    realcomm.launch(max, ranks)  # the first waits for imports
    with tempfile.TemporaryDirectory() as folder:
        train(name, ranks, every, Path(folder))
        return learned(Path(folder))


def differences(state: Any, other_state: Any, place: str) -> Iterator[str]:
    """Yield the places at which two states differ bitwise."""
    (leaves, form), (others, other_form) = tree_flatten_with_path(state), tree_flatten_with_path(other_state)
    if form != other_form:
        yield f"{place}: {form} and {other_form}"
    for (path, leaf), (_, other_leaf) in zip(leaves, others, strict=False):
        if not (leaf.equal(other_leaf) if isinstance(leaf, torch.Tensor) else leaf == other_leaf):
            yield f"{place}{keystr(path)}: {leaf} and {other_leaf}"


def try_seed(seed: int) -> Tried:
    """Kill and resume a training at random times, which follow from the seed."""
    drawn = random.Random(seed)
    name, ranks, every = drawn.choice([*RECIPES]), drawn.choice((2, 2, 3)), drawn.choice((1, 2, 5))
    clean, kills, named, problems = undisturbed(name, ranks, every), 0, 0, list[str]()
    with tempfile.TemporaryDirectory() as path:
        folder = Path(path)
        for _ in range(drawn.randint(1, MOST_KILLS)):
            rank, number = drawn.randrange(ranks), int(drawn.choice(SIGNALS))
            log = folder / "logs" / METRICS
            rows = 1 + drawn.randint(count_rows(log), max(count_rows(log), 3 * len(clean.metrics) // 4))
            delay_s = drawn.uniform(0, 0.01)  # a step or two
            about = f"seed {seed}, {name} on {ranks} ranks, kill {kills} by signal {number} at row {rows}"
            try:
                with killing(rank, ranks, number, delay_s, log, rows) as sent:
                    train(name, ranks, every, folder)
                break
            except LaunchFailed as error:
                kills += len(sent)
                is_named = f"rank {rank} was killed by {describe_signal(number)} (status: " in str(error)
                named += is_named
                if not (sent and is_named):
                    problems.append(f"{about}, rank {rank}: {error}")
        else:
            train(name, ranks, every, folder)
        ended = learned(folder)
        problems += [f"{about}: {place} differs" for place in differences(clean.state, ended.state, "state")][:3]
        problems += [f"{about}: {place} differs" for place in differences(clean.metrics, ended.metrics, "metrics")][:3]
        left = [path.name for path in folder.glob("kept/*/.ringlab-*")]
        problems += [f"{about}: {left} is left"] if left else []
    return Tried(kills, named, problems)
