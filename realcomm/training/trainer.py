"""Train data-parallel on real ranks, and time each phase of a training step."""

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from collectives.checks import check_cluster, check_path, check_sequence
from collectives.errors import InputError, failure_first
from collectives.output_files import check_output
from collectives.proof.verifier import check_bitwise_identical
from collectives.quoting import quote
from collectives.records.spans import Spans
from collectives.records.trace import Trace, name_in_library
from collectives.training.workload import Training, check_training, is_file_reference
from collectives.variables import is_first_rank
from realcomm.launching.launcher import check_launch, launch
from realcomm.launching.server import preload
from realcomm.launching.torch_process import PRELOAD
from realcomm.launching.types import Progress, RankNetwork, Ranks
from realcomm.training.model_files import check_model
from realcomm.training.rank_result import RankResult, count_steps, known_images

if TYPE_CHECKING:
    from realcomm.training.checkpoints import Start
    from realcomm.training.observing import Observer


_ALL = (PRELOAD, "realcomm.training.running")
_BY_DATASET = {
    "digits": ("sklearn.datasets", "sklearn.model_selection"),
    "cifar10": ("torchvision",),
    "imagefolder": ("torchvision",),
}


@failure_first()
def train(
    training: Training,
    cluster: Ranks,
    *,
    steps: int | None = None,
    backend: str = "gloo",
    timeout: float = 600.0,
    progress: Progress | None = None,
    network: RankNetwork | None = None,
    weights_file: Path | str | None = None,
    observers: "Sequence[Observer]" = (),
    resume: "str | Path | Start | None" = None,
) -> Trace:
    """Train on ``cluster.world_size`` processes on this machine, for all epochs or only the first ``steps`` steps.

    Return a trace with a span for each phase, step and rank. The phases are loading (waiting for the batch), forward,
    backward, sync (including waiting for other ranks) and optimizer. DistributedDataParallel averages gradients during
    backward, so its sync spans have no length. On CPUs, each bucket of gradients is also a span, from when the bucket
    is full until its mean is ready. ``network`` is a network of ``realcomm.emulate``. Default: the loopback.

    Trace facts: ``batch_size``, ``epochs`` (a fraction if stopped early), ``examples_seen`` (by all ranks together),
    ``final_loss`` (of the last step, mean over the ranks), ``test_accuracy`` (share of the held-out images),
    ``warmup_steps`` (first steps to exclude from medians), ``single_rank_step_s`` and ``single_rank_backward_s`` (of
    one rank alone with the same threads), and ``replicas_identical`` (1.0 if all ranks have bitwise equal weights at
    the end, else 0.0).

    ``timeout`` is the longest time without a finished step, in seconds. Every rank has its own copy of ``observers``,
    which are called after each step and epoch. ``resume`` is the path of a checkpoint, or "auto" for the newest
    complete checkpoint of this training run. "auto" starts afresh if there is no checkpoint. The trace of a resumed run
    has only the remaining steps. The final weights are written to ``weights_file`` as a state_dict for ``torch.load``.
    Raise InputError for an invalid argument, and RankFailed and TimedOut as ``launch`` does.

    >>> import simcomm
    >>> from collectives import find_algorithm
    >>> training = Training(find_algorithm("all_reduce/ring"))
    >>> trace = train(training, simcomm.this_machine(ranks=2), steps=4)  # doctest: +SKIP
    >>> trace.facts["examples_seen"]  # doctest: +SKIP
    256.0
    """
    observers = check_sequence("observers", observers, of="observers")
    _check_arguments(training, cluster, steps, backend, timeout, observers)
    weights = None if weights_file is None else _check_weights_file(weights_file, training)
    removing: AbstractContextManager[None] = nullcontext()
    if training.checkpoints is not None or resume is not None:
        from realcomm.training.checkpoints import Checkpointing, Start, find_start, removing_remains

        start = resume if isinstance(resume, Start) else find_start(training, cluster.world_size, resume)
        observers, removing = (*observers, Checkpointing(training, start.checkpoint)), removing_remains(training)
    preload_for([training])
    with removing:
        ranks = launch(
            *(train_rank, cluster.world_size, training, steps, weights, tuple(observers)),
            backend=backend,
            timeout=timeout,
            progress=progress,
            network=network,
            renews=True,
        )
    return make_trace(training, cluster, ranks)


def _check_arguments(
    training: Training, cluster: Ranks, steps: int | None, backend: str, timeout: float, observers: list[Any]
) -> None:
    check_cluster(cluster, Ranks)
    check_training(training, steps)
    check_model(training)
    if training.precision == "fp16" and backend != "nccl":
        raise InputError("precision 'fp16' needs GPUs (backend nccl); on CPUs use float32 or bf16")
    count_steps(training, lambda: count_images(training), cluster.world_size, steps)
    if training.program is not None:
        check_bitwise_identical(training.program, cluster.world_size)
    check_launch(cluster.world_size, backend, timeout)
    for observer in observers:
        if not hasattr(observer, "step_done"):
            raise InputError(f"observers must be realcomm.training.observing.Observer, not {quote(observer)}")


def train_rank(
    rank: int,
    world_size: int,
    training: Training,
    steps: int | None = None,
    weights_file: Path | None = None,
    observers: "Sequence[Observer]" = (),
) -> RankResult:
    """Train as one rank of the default group of torch.distributed, and return the rank's result."""
    from realcomm.training.running import RunningTraining  # imports torch

    running = RunningTraining(rank, world_size, training, steps, observers)
    running.take_steps()
    return running.finish(weights_file)


def make_trace(training: Training, cluster: Ranks, ranks: list[RankResult]) -> Trace:
    """Combine the results of all ranks into one trace."""
    spans = Spans.of(span for rank in ranks for span in rank.spans).sorted()
    elapsed = float(spans.end.max() - spans.begin.min()) if len(spans) else 0.0  # no step remained
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


def _check_weights_file(weights_file: Path | str, training: Training) -> Path:
    """Return the path for the weights. Raise InputError if it is not writable or is in the folder of the images."""
    path = check_path("weights_file", weights_file)
    if is_first_rank():
        check_output(path)
        folder = training.data_folder
        if folder is not None and Path(path).resolve().is_relative_to(Path(folder).resolve()):
            raise InputError(f"weights_file {path} is inside data_folder {folder}; write the weights elsewhere")
    return path


def count_images(training: Training) -> int:
    """Return the number of training images.

    If this requires reading files, also read the held-out images. Raise InputError if a file is missing or invalid.
    """
    images = known_images(training)
    if images is None:
        from realcomm.training.datasets import load_images  # imports torch

        load_images(training, train=False)
        images = len(load_images(training, train=True))  # type: ignore[arg-type]
    return images


def preload_for(trainings: Iterable[Training]) -> None:
    """Let the fork server import the modules that these training runs need. This has no effect on a running server."""
    for training in trainings:
        preload(*_ALL, *_BY_DATASET.get(training.dataset, ()))
        if not is_file_reference(training.model):
            preload("torchvision")
