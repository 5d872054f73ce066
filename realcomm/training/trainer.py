"""Data-parallel training on real ranks: a rank program averages the gradients, every phase of every step is timed."""

import hashlib
import io
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch._C._distributed_c10d import GradBucket  # whose public name has no type
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.parallel import DistributedDataParallel

from collectives.catalogue import find_algorithm
from collectives.checks import check_cluster, check_path
from collectives.declaration import Algorithm
from collectives.output_files import write_bytes
from collectives.proof.verifier import verify
from collectives.records.spans import Span, Spans
from collectives.records.trace import Trace, name_in_library
from collectives.request import Request
from collectives.workload import Training, check_training
from realcomm.execution.executor import execute
from realcomm.execution.own_collective import make_runner
from realcomm.launching.group import own_device
from realcomm.launching.launcher import launch
from realcomm.launching.so_far import tell_by
from realcomm.launching.status import report_progress, set_status
from realcomm.launching.types import Network, Progress, Ranks
from realcomm.training.broken_training import PHASES, tracing_what_breaks
from realcomm.training.compute_phases import measure_alone
from realcomm.training.datasets import load_images
from realcomm.training.replica import (
    WARM_UP_STEPS,
    Replica,
    Stopwatch,
    Sync,
    build_model,
    check_model,
    make_replica,
    no_sync,
    take_step,
)
from realcomm.training.shard import Shard, held_out_batches


@dataclass(frozen=True)
class RankResult:
    """The result of a training on one rank."""

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
    network: Network | None = None,
    weights_file: Path | str | None = None,
) -> Trace:
    """Train on ``cluster.world_size`` processes of this machine, for all epochs or only the first ``steps`` steps.

    Return a trace with a span for each phase, step and rank: forward, backward, sync (waiting included) and optimizer.
    Loading a batch belongs to none of them. With DistributedDataParallel the sync overlaps backward: its spans have no
    length, and on CPUs each bucket of gradients is a span from when it is full to when its mean is there. The ranks
    meet on the ``network`` of ``realcomm.emulate``, if one is given, and else over the loopback.

    Its facts: ``batch_size``, ``epochs`` (a fraction if stopped early), ``examples_seen`` (by all ranks together),
    ``final_loss`` (of the last step, mean over the ranks), ``test_accuracy`` (share of the held-out images),
    ``warmup_steps`` (first steps to leave out of medians), ``single_rank_step_s`` (of one rank alone with the same
    threads) and ``replicas_identical`` (1.0 if all ranks ended with the same bits, else 0.0).

    Write the final weights, a state_dict that ``torch.load`` reads, to ``weights_file`` if one is given. Raise
    InputError for a training that cannot be run, and RankFailed and TimedOut as ``launch`` does; their ``trace`` shows
    the phases up to there, and the sync that was under way.

    >>> training = Training(find_algorithm("all_reduce/ring"))
    >>> trace = train(training, simcomm.this_machine(ranks=2), steps=4)  # doctest: +SKIP
    >>> trace.facts["examples_seen"]  # doctest: +SKIP
    256.0
    """
    check_cluster(cluster, Ranks)
    check_training(training, steps)
    _check(training, cluster.world_size, steps)
    given = (training, steps, None if weights_file is None else check_path("weights_file", weights_file))
    options: dict[str, Any] = {"backend": backend, "timeout": timeout, "progress": progress, "network": network}
    with tracing_what_breaks(training, cluster):
        ranks = launch(train_rank, cluster.world_size, *given, **options)
    return make_trace(training, cluster, ranks)


def train_rank(
    rank: int, world_size: int, training: Training, steps: int | None = None, weights_file: Path | None = None
) -> RankResult:
    """Train as one rank of the default group of torch.distributed; all ranks end with the same weights."""
    running = RunningTraining(rank, world_size, training, steps)
    running.take_steps()
    return running.finish(weights_file)


class RunningTraining:
    """A training on one rank, carried out block by block. All ranks call each method together."""

    def __init__(self, rank: int, world_size: int, training: Training, steps: int | None = None) -> None:
        """Prepare the model, the same on all ranks, and its sync."""
        set_status("preparing model and images")
        self.training, self.world_size = training, world_size
        self.model = build_model(training.model, seed=training.seed + rank)  # different on every rank ...
        self.shard = Shard(training, rank, world_size, steps)
        self._alone = measure_alone(training) if rank == 0 else 0.0
        set_status("broadcasting the weights")
        broadcast(self.model.state_dict().values())  # ... until all have rank 0's
        self._replica, self._sync = make_replica_and_sync(self.model, training, rank, world_size)
        self._watch, self._batches = Stopwatch(rank), enumerate(self.shard)
        self._seen, self._loss, self.done = 0, 0.0, 0
        if isinstance(self._replica.model, DistributedDataParallel) and own_device().type != "cuda":
            record_buckets(self._replica.model, self._watch)

    def take_steps(self, count: int | None = None) -> None:
        """Take so many more steps, or all that remain."""
        dist.barrier()  # the stopwatches of all ranks go on together
        self._watch.resume()
        tell_by(PHASES, self._watch.absolute_spans)
        for step, (images, labels) in islice(self._batches, count):
            set_status(f"training step {step}")
            self._loss = take_step(self._replica, images, labels, self._sync, self._watch).item()
            self._seen, self.done = self._seen + len(labels), step + 1
            if self.shard.rank == 0:
                epoch = f"epoch {int(self.shard.epochs_after(step)) + 1}/{self.training.epochs}"
                text = f"training/{self.training.sync_name} {epoch} loss {self._loss:.2f}"
                report_progress(step + 1, self.shard.steps, text)
        self._watch.pause()

    def finish(self, weights_file: Path | None = None) -> RankResult:
        """Evaluate the model, write its weights if a file is given, and return the result."""
        rank, training = self.shard.rank, self.training
        set_status("evaluating")
        broadcast(self.model.buffers())  # batch norm's running statistics: every rank gathered its own
        right, tested = evaluate(self.model, training, rank, self.world_size)
        sums = sum_by_gradient_sync(training, self._seen, self._loss, right, tested)
        if rank == 0 and weights_file is not None:
            save_weights(self.model, weights_file)
        facts = _facts(training, self.shard, sums) | {"single_rank_step_s": self._alone}
        return RankResult(self._watch.spans, facts, weights_digest(self.model))


def broadcast(tensors: Iterable[torch.Tensor]) -> None:
    """Copy rank 0's values of these tensors to all ranks."""
    algorithm = find_algorithm("broadcast/naive")
    for tensor in tensors:
        execute(algorithm, tensor)


def make_replica_and_sync(model: nn.Module, training: Training, rank: int, world_size: int) -> tuple[Replica, Sync]:
    """Return the replica to train and the sync that follows backward: none if torch's own averages during backward."""
    scale = world_size if training.scale_learning_rate else 1
    replica = make_replica(model, training.learning_rate * scale)
    if training.gradient_sync is None:
        return replace(replica, model=DistributedDataParallel(model)), no_sync
    return replica, make_sync(training.gradient_sync, rank, world_size, replica.gradients)


def record_buckets(model: DistributedDataParallel, watch: Stopwatch) -> None:
    """Have each bucket of gradients that torch reduces during backward be a span, from when it is full to its mean."""

    def reduce_bucket(state: object, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
        end_of = watch.begin(f"bucket {bucket.index()}")

        def end(done: torch.futures.Future[torch.Tensor]) -> torch.Tensor:
            end_of()
            return done.value()

        return allreduce_hook(None, bucket).then(end)  # type: ignore[arg-type]

    model.register_comm_hook(None, reduce_bucket)


def make_sync(algorithm: Algorithm, rank: int, world_size: int, gradients: torch.Tensor) -> Sync:
    """Return the sync that replaces ``gradients`` by their mean over all ranks, by an all_reduce."""
    request = Request(algorithm, gradients.numel(), op="mean")
    return make_runner(request, rank, world_size, gradients.device).run


def evaluate(model: nn.Module, training: Training, rank: int, world_size: int) -> tuple[int, int]:
    """Return how many of this rank's share of the held-out images the model classifies right, and how many they are."""
    right, tested = 0, 0
    model.eval()
    with torch.inference_mode():
        for images, labels in held_out_batches(training, rank, world_size):
            right += int((model(images).argmax(dim=1) == labels).sum())
            tested += len(labels)
    return right, tested


def sum_by_gradient_sync(training: Training, *values: float) -> list[float]:
    """Return the sum of each value over all ranks, by the all_reduce of the gradients, or by the ring."""
    sums = torch.tensor(values, dtype=torch.float64, device=own_device())
    sync = training.gradient_sync
    execute(find_algorithm("all_reduce/ring") if sync is None or sync.is_nccl else sync, sums)
    return list(sums.tolist())


def make_trace(training: Training, cluster: Ranks, ranks: list[RankResult]) -> Trace:
    """Return the results of all ranks as one trace."""
    spans = Spans.of(span for rank in ranks for span in rank.spans).sorted()
    elapsed = float(spans.end.max() - spans.begin.min())
    identical = len({rank.digest for rank in ranks}) == 1
    facts, hosts = ranks[0].facts | {"replicas_identical": float(identical)}, list(cluster.hosts)
    sync = training.gradient_sync
    return Trace(
        f"training/{training.sync_name}",
        "measured",
        cluster.world_size,
        elapsed,
        spans=spans,
        nodes=list(dict.fromkeys(hosts)),
        hosts=hosts,
        facts=facts,
        algorithm=name_in_library(sync) if sync else "",
        chunks=sync.chunks(cluster.world_size) if sync else 0,
    )


def save_weights(model: nn.Module, path: Path) -> None:
    """Write the model's state_dict to a file, all of it or nothing."""
    content = io.BytesIO()
    torch.save({name: tensor.cpu() for name, tensor in model.state_dict().items()}, content)
    write_bytes(path, content.getvalue())


def weights_digest(model: nn.Module) -> str:
    """Return the SHA-256 of all parameters and buffers, in hexadecimal."""
    summed = hashlib.sha256()
    for tensor in model.state_dict().values():
        summed.update(tensor.cpu().numpy().tobytes())
    return summed.hexdigest()


def _facts(training: Training, shard: Shard, sums: list[float]) -> dict[str, float]:
    seen, losses, right, tested = sums
    return {
        "batch_size": float(training.batch_size),
        "epochs": shard.epochs_after(shard.steps),
        "examples_seen": seen,
        "final_loss": losses / shard.world_size,
        "test_accuracy": right / tested,
        "warmup_steps": float(min(WARM_UP_STEPS, shard.steps - 1)),
    }


def _check(training: Training, world_size: int, steps: int | None) -> None:
    """Raise InputError for a training that cannot be run, here rather than in every process."""
    check_model(training.model)
    Shard(training, 0, world_size, steps)
    load_images(training.dataset, train=False, folder=training.data_folder)
    if training.gradient_sync is not None and not training.gradient_sync.is_nccl:
        verify(training.gradient_sync, world_size)
