"""A scenario's training as a job whose meshes are predicted by closed forms: a transformer on described GPUs.

What is believed of the cluster and the framework is by a file of runs, by runs that are kept, or by none.
"""

from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Annotated

from typer import Option

from collectives.errors import InputError
from collectives.quoting import quote
from collectives.records.model_profile import EXAMPLE, TRANSFORMERS, is_transformer, parse_transformer
from collectives.training.parallelism import FRAMEWORKS
from collectives.training.recipe import check_known
from collectives.units import count
from scenarios.loader import SpreadTraining
from scenarios.training_form import TrainingForm
from simcomm.mesh.clusters import mesh_cluster
from simcomm.mesh.job import TrainingJob
from simcomm.mesh.language import SOURCE, LanguageModel, is_language
from simcomm.mesh_search.columns import BITS, OFFLOADED, OPTIMIZERS, PRECISIONS
from simcomm.mesh_search.devices import can_multiply, is_mesh_gpu
from simcomm.mesh_search.runs import belief_of, find_own_runs, read_own_runs
from simcomm.mesh_search.search import MeshJob
from simcomm.mesh_search.uncertainty import Belief, believe


@dataclass(frozen=True)
class MeshOptions:
    """How a training of a language model differs from what its scenario says."""

    batch: Annotated[
        int | None, Option(min=1, metavar="N", help="Sequences in a step of all devices; else batch_size a device.")
    ] = None
    seq: Annotated[int | None, Option(min=16, metavar="N", help="Tokens of a sequence; else the model's context.")] = (
        None
    )
    precision: Annotated[
        str | None, Option(metavar="NAME", help="bf16, fp8, mxfp8, nvfp4, tf32, float32; else the scenario's.")
    ] = None
    framework: Annotated[
        str | None,
        Option(metavar="NAME", help="torchtitan, nanotron, megatron, ...; else the scenario's."),
    ] = None
    is_compiled: Annotated[bool, Option("--compile", help="Layers are compiled.")] = False
    optimizer: Annotated[
        str | None, Option(metavar="NAME", help="adamw, adamw8bit or sgd; else the scenario's, else adamw.")
    ] = None
    offload: Annotated[
        str, Option(metavar="WHAT", help="What the host keeps: none, optimizer (states), or parameters too.")
    ] = "none"
    lora: Annotated[
        int, Option(min=0, max=4096, metavar="RANK", help="Adapters of this rank are trained, weights are frozen.")
    ] = 0
    bits: Annotated[str, Option(metavar="16|8|4", help="Bits of a frozen weight; 4 is QLoRA.")] = "16"
    with_zero_bubble: Annotated[bool, Option("--zero-bubble", help="Zero-bubble schedules of pipelines too.")] = False

    def check(self) -> None:
        """Raise InputError for a name that is not known, and for bits of weights that are not frozen."""
        for option, value, known in (
            ("precision", self.precision, PRECISIONS), ("framework", self.framework, FRAMEWORKS),
            ("optimizer", self.optimizer, OPTIMIZERS), ("offload", self.offload, OFFLOADED), ("bits", self.bits, BITS),
        ):  # fmt: skip
            if value is not None:
                check_known(option, value, tuple(known))
        if self.bits != "16" and not self.lora:
            raise InputError(f"--bits {self.bits} is of frozen weights: give --lora RANK too")


def find_language_model(spread: SpreadTraining, job: TrainingJob) -> LanguageModel | None:
    """Return a scenario's training as closed forms have it; None where it is no language model, or times are stated.

    Raises InputError for a framework where it is of nothing."""
    host, training = mesh_cluster(spread.cluster).host, spread.training
    named = replace(job, optimizer=named_optimizer(training))
    if host is None or training.compute is not None or not is_language(named) or not is_mesh_gpu(host.gpu):
        if "framework" in training.model_fields_set:
            raise InputError(
                f"framework = {quote(training.framework)} is of language models on described GPUs, whose times are not "
                "stated; leave it out"
            )
        return None
    _check_precision(host.gpu, training.precision, "training.precision")
    belief, told = find_belief(host.gpu, training.framework)
    adapted = "" if told is None else f", {told[0].lower()}{told[1:].removesuffix('.')}"
    return LanguageModel(named, host, belief, SOURCE + adapted)


def make_job(spread: SpreadTraining, devices: int, options: MeshOptions) -> MeshJob:
    """Return what is to be searched for so many devices. Raise InputError for a model or cluster that it is not for."""
    training, host = spread.training, mesh_cluster(spread.cluster).host
    if host is None:
        raise InputError('search is about described GPU machines: give cluster.preset and transport = "nccl"')
    if not is_transformer(training.model):
        raise InputError(
            f"model {quote(training.model)} is no transformer by its dimensions; give {EXAMPLE}, or a name: "
            + ", ".join(TRANSFORMERS)
        )
    kind, shape = parse_transformer(training.model)
    node = host.gpus
    if devices > node and not host.nic_rate:
        raise InputError(
            f"{devices} devices of {spread.cluster.title}: its hosts have {node} and its network is not known; give "
            "cluster.nic and cluster.net, or up to as many devices as a host has"
        )
    if devices > node and devices % node:
        raise InputError(f"{devices} devices do not fill hosts of {node}; give a multiple of {node}, or up to {node}")
    form, precision = spread.parallelism, options.precision or training.precision
    _check_precision(host.gpu, precision, "--precision")
    return MeshJob(
        kind=kind, shape=shape, seq=options.seq or shape.context,
        batch=options.batch or training.batch_size * devices,
        gpu=host.gpu, gpus=devices, node_gpus=node, nic_rate=host.nic_rate, peer_rate=host.peer_rate,
        precision=precision, framework=options.framework or training.framework,
        is_compiled=options.is_compiled, optimizer=options.optimizer or named_optimizer(training),
        offload=options.offload, lora=options.lora, frozen_bits=options.bits,
        experts=form.experts, top_k=form.top_k if form.experts else 0, with_zero_bubble=options.with_zero_bubble,
    )  # fmt: skip


def _check_precision(gpu: str, precision: str, key: str) -> None:
    """Raise InputError for a precision that a GPU does not multiply, which names the key that says it."""
    if not can_multiply(gpu, precision):
        known = ", ".join(name for name in PRECISIONS if can_multiply(gpu, name))
        raise InputError(f"{gpu} does not multiply matrices in {precision}; give {key}, of {known}")


def named_optimizer(training: TrainingForm) -> str:
    """Return the optimizer that a scenario names; language models are trained by AdamW where it names none."""
    return str(training.optimizer) if "optimizer" in training.model_fields_set else "adamw"


def find_belief(gpu: str, framework: str, runs: Path | None = None) -> tuple[Belief, str | None]:
    """Return what is believed, and what to say of it: adapted to a file's runs, or to those kept of this GPU.

    Raises InputError for a file without a run that can be used.
    """
    if runs is not None:
        return _of_file(runs)
    kept = find_own_runs(gpu, framework)
    if kept is None:
        return believe(), None
    return kept.belief, f"Adapted to {kept.title}."


@cache
def _of_file(runs: Path) -> tuple[Belief, str]:
    found = read_own_runs(runs)
    rows = count(sum(len(group.rows) for group in found.groups), "run")
    reasons = "; ".join(found.refused)
    left = f"; {sum(found.refused.values())} left out: {reasons}" if found.refused else ""
    return belief_of(found.groups), f"Adapted to {rows} of {runs}{left}."
