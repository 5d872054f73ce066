"""Data-parallel training on real ranks: gradients averaged by a program of ours, every phase of every step timed."""

import hashlib
import io
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from collectives.catalogue import find_algorithm
from collectives.checks import check_cluster
from collectives.declaration import Algorithm
from collectives.proof.verifier import verify
from collectives.records.files import write_bytes
from collectives.records.trace import Span, Trace
from collectives.request import Request
from collectives.workload import Training, check_training
from realcomm.execution.executor import Executor, execute
from realcomm.launching.group import own_device
from realcomm.launching.launcher import launch
from realcomm.launching.status import report_progress, set_status
from realcomm.launching.types import Progress, Ranks
from realcomm.training.compute_phases import seconds_alone
from realcomm.training.data import load
from realcomm.training.replica import (
    WARM_UP_STEPS,
    Replica,
    Stopwatch,
    Sync,
    build_model,
    check_model,
    make_replica,
    no_sync,
    training_step,
)
from realcomm.training.shard import Shard, held_out_batches


@dataclass(frozen=True)
class RankResult:
    """What one rank tells of a training."""

    spans: list[Span]
    facts: dict[str, float]  # the same on all ranks, but for single_rank_step_s, which rank 0 measures
    digest: str  # SHA-256 of its final weights


def train(
    training: Training,
    cluster: Ranks,
    *,
    steps: int | None = None,
    backend: str = "gloo",
    timeout: float = 600.0,
    progress: Progress | None = None,
    weights_file: Path | None = None,
) -> Trace:
    """Train on ``cluster.world_size`` processes of this machine, for all epochs or only the first ``steps`` steps.

    The trace has a span a phase, step and rank: forward, backward, sync (waiting included) and optimizer. Loading a
    batch belongs to none of them. Under DistributedDataParallel the sync overlaps backward: its spans have no length.

    Its facts: ``batch_size``, ``epochs`` (a fraction if stopped early), ``examples_seen`` (by all ranks together),
    ``final_loss`` (of the last step, mean over the ranks), ``test_accuracy`` (share of the held-out images),
    ``warmup_steps`` (first steps to leave out of medians), ``single_rank_step_s`` (of one rank alone with the same
    threads) and ``replicas_identical`` (1.0 if all ranks ended with the same bits, else 0.0).

    The final weights, a state_dict that ``torch.load`` reads, are in ``weights_file`` if one is given. Raises
    InputError for a training that cannot be run, and RankFailed and TimedOut as ``launch`` does.
    """
    check_cluster(cluster, Ranks)
    check_training(training)
    _check(training, cluster.world_size, steps)
    given = (training, steps, weights_file)
    ranks = launch(train_rank, cluster.world_size, *given, backend=backend, timeout=timeout, progress=progress)
    return as_trace(training, cluster, ranks)


def train_rank(
    rank: int, world_size: int, training: Training, steps: int | None = None, weights_file: Path | None = None
) -> RankResult:
    """One rank's part, in the default group of torch.distributed: it ends with the same weights as all others."""
    set_status("preparing model and images")
    model = build_model(training.model, seed=training.seed + rank)  # different on every rank ...
    shard = Shard(training, rank, world_size, steps)
    alone = seconds_alone(training) if rank == 0 else 0.0
    set_status("broadcasting the weights")
    broadcast(model.state_dict().values())  # ... until all have rank 0's
    spans, seen, loss = take_steps(model, training, shard)
    set_status("evaluating")
    broadcast(model.buffers())  # batch norm's running statistics: every rank gathered its own
    right, tested = evaluate(model, training, rank, world_size)
    sums = over_all_ranks(training, seen, loss, right, tested)
    if rank == 0 and weights_file is not None:
        save(model, weights_file)
    return RankResult(spans, _facts(training, shard, sums) | {"single_rank_step_s": alone}, digest(model))


def broadcast(tensors: Iterable[torch.Tensor]) -> None:
    """Every rank holds rank 0's values in these tensors."""
    algorithm = find_algorithm("broadcast/naive")
    for tensor in tensors:
        execute(algorithm, tensor)


def take_steps(model: nn.Module, training: Training, shard: Shard) -> tuple[list[Span], int, float]:
    """The model is trained on all batches of the shard. This rank's spans, examples seen and last loss."""
    replica, sync = synchronised(model, training, shard.rank, shard.world_size)
    dist.barrier()  # the watches of all ranks start now
    watch, seen, loss = Stopwatch(shard.rank), 0, 0.0
    for step, (images, labels) in enumerate(shard):
        set_status(f"training step {step}")
        loss = training_step(replica, images, labels, sync, watch).item()
        seen += len(labels)
        if shard.rank == 0:
            epoch = f"epoch {int(shard.epoch(step)) + 1}/{training.epochs}"
            report_progress(step + 1, shard.steps, f"training/{training.sync_name} {epoch} loss {loss:.2f}")
    return watch.spans, seen, loss


def synchronised(model: nn.Module, training: Training, rank: int, world_size: int) -> tuple[Replica, Sync]:
    """The replica to train, and what averages its gradients after backward: nothing if torch's own does it during."""
    scale = world_size if training.scale_learning_rate else 1
    replica = make_replica(model, training.learning_rate * scale)
    if training.gradient_sync is None:
        return replace(replica, model=DistributedDataParallel(model)), no_sync
    return replica, averaging(training.gradient_sync, rank, world_size, replica.gradients)


def averaging(algorithm: Algorithm, rank: int, world_size: int, gradients: torch.Tensor) -> Sync:
    """What leaves the mean over all ranks in ``gradients``, by an all_reduce."""
    request = Request(algorithm, gradients.numel(), op="mean")
    return Executor(request, rank, world_size, device=gradients.device).run


def evaluate(model: nn.Module, training: Training, rank: int, world_size: int) -> tuple[int, int]:
    """How many of this rank's share of the held-out images the model tells right, and how many they are."""
    right, tested = 0, 0
    model.eval()
    with torch.inference_mode():
        for images, labels in held_out_batches(training, rank, world_size):
            right += int((model(images).argmax(dim=1) == labels).sum())
            tested += len(labels)
    return right, tested


def over_all_ranks(training: Training, *values: float) -> list[float]:
    """Their sums over all ranks, by the all_reduce that the gradients take, or by the ring."""
    sums = torch.tensor(values, dtype=torch.float64, device=own_device())
    execute(training.gradient_sync or find_algorithm("all_reduce/ring"), sums)
    return list(sums.tolist())


def as_trace(training: Training, cluster: Ranks, ranks: list[RankResult]) -> Trace:
    """What all ranks tell, as one."""
    spans = sorted((span for rank in ranks for span in rank.spans), key=lambda span: (span.begin, span.rank))
    elapsed = max(span.end for span in spans) - min(span.begin for span in spans)
    identical = len({rank.digest for rank in ranks}) == 1
    facts, hosts = ranks[0].facts | {"replicas_identical": float(identical)}, list(cluster.hosts)
    return Trace(
        f"training/{training.sync_name}",
        "measured",
        cluster.world_size,
        elapsed,
        spans=spans,
        nodes=list(dict.fromkeys(hosts)),
        hosts=hosts,
        facts=facts,
    )


def save(model: nn.Module, path: Path) -> None:
    """The model's state_dict is in the file, whole or not at all."""
    content = io.BytesIO()
    torch.save({name: tensor.cpu() for name, tensor in model.state_dict().items()}, content)
    write_bytes(path, content.getvalue())


def digest(model: nn.Module) -> str:
    """SHA-256 of all parameters and buffers."""
    summed = hashlib.sha256()
    for tensor in model.state_dict().values():
        summed.update(tensor.cpu().numpy().tobytes())
    return summed.hexdigest()


def _facts(training: Training, shard: Shard, sums: list[float]) -> dict[str, float]:
    seen, losses, right, tested = sums
    return {
        "batch_size": float(training.batch_size),
        "epochs": shard.epoch(shard.steps),
        "examples_seen": seen,
        "final_loss": losses / shard.world_size,
        "test_accuracy": right / tested,
        "warmup_steps": float(min(WARM_UP_STEPS, shard.steps - 1)),
    }


def _check(training: Training, world_size: int, steps: int | None) -> None:
    """Raise InputError here, rather than in every process, for what cannot work."""
    check_model(training.model)
    Shard(training, 0, world_size, steps)
    load(training.dataset, train=False, folder=training.data_folder)
    if training.gradient_sync is not None:
        verify(training.gradient_sync, world_size)
