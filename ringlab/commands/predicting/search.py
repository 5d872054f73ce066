"""``ringlab search``: all meshes for a model on devices, the fastest first: rate, memory, price, and three to try."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf, log
from pathlib import Path
from statistics import NormalDist
from typing import Annotated, Any

from typer import Option

from collectives.errors import InputError
from collectives.output_files import write_text
from collectives.quoting import quote, suggest
from collectives.records.model_profile import EXAMPLE, TRANSFORMERS, is_transformer, parse_transformer
from collectives.training.parallelism import FRAMEWORKS
from collectives.training.recipe import check_known
from planner.beliefs import Z_80
from planner.gpus import PRECISIONS, describe_unpublished, is_published
from planner.jobs import BITS, OFFLOADED, OPTIMIZERS
from planner.memory import FILL
from planner.memory import PARTS as MEMORY_PARTS
from planner.mesh.clusters import mesh_cluster
from planner.search import (
    FoundMeshes,
    MeshJob,
    choose_runs,
    choose_tries,
    keep_mesh,
    least_memory,
    search,
    what_would_fit,
    why_others_lose,
    why_too_large,
)
from ringlab.commands.predicting.predict_sweep import parse_sweep
from ringlab.commands.predicting.search_answer import Case, Learning, MeshRow, Money, RemedyRow, SearchAnswer
from ringlab.jobs.mesh_files import FORMATS, write_mesh
from ringlab.shared.failures import refusals_about
from ringlab.shared.models import check_precision, find_belief, named_optimizer
from ringlab.shared.options import JsonOpt, ScenarioArg, SetOpt, SizeOptions, drawing, with_groups
from ringlab.shared.output import check_outputs, deliver, make_console
from ringlab.shared.prices import find_price
from ringlab.shared.progress import TerminalProgress, computing, draw_to
from ringlab.shared.ranges import parse_world_sizes
from scenarios.loader import SpreadTraining, read_spread_training
from scenarios.sections import parse_hours

KEYS = {  # that a what-if varies: of a scenario
    "preset": "cluster.preset", "nodes": "cluster.nodes", "model": "training.model",
    "batch_size": "training.batch_size", "price": "training.price_per_hour", "sequence": "training.sequence",
}  # fmt: skip
OPTIONS = ("batch", "precision", "framework", "optimizer", "offload", "lora", "bits")  # and of the command
WHOLE = {"batch": (1, 10**9), "lora": (0, 4096)}  # and what is accepted


@dataclass(frozen=True)
class SearchOptions:
    """How a training differs from what its scenario says, what is listed of its meshes, and what is written besides."""

    batch: Annotated[
        int | None, Option(min=1, metavar="N", help="Global batch size in sequences. Default: batch_size per device.")
    ] = None
    precision: Annotated[
        str | None,
        Option(metavar="NAME", help="Precision: bf16, fp8, mxfp8, nvfp4, tf32 or float32. Default: the scenario's."),
    ] = None
    framework: Annotated[
        str | None,
        Option(metavar="NAME", help="Training framework: torchtitan, nanotron, megatron, ... Default: the scenario's."),
    ] = None
    is_compiled: Annotated[bool, Option("--compile", help="Assume that layers run under torch.compile.")] = False
    optimizer: Annotated[
        str | None,
        Option(metavar="NAME", help="Optimizer: adamw, adamw8bit or sgd. Default: the scenario's, or adamw."),
    ] = None
    offload: Annotated[
        str,
        Option(
            metavar="WHAT", help="What to offload to host memory: none, optimizer (states) or parameters (and states)."
        ),
    ] = "none"
    lora: Annotated[
        int, Option(min=0, max=4096, metavar="RANK", help="Train LoRA adapters of this rank; the weights are frozen.")
    ] = 0
    bits: Annotated[str, Option(metavar="16|8|4", help="Bits per frozen weight. 4 is QLoRA.")] = "16"
    with_zero_bubble: Annotated[bool, Option("--zero-bubble", help="Include zero-bubble pipeline schedules.")] = False
    top: Annotated[int, Option(min=1, max=1000, metavar="N", help="Number of meshes to list.")] = 10
    why: Annotated[bool, Option("--why", help="Explain why each other kind of mesh is slower.")] = False
    export: Annotated[
        list[str] | None,
        Option(
            metavar="FORMAT=FILE",
            help=("Write the fastest mesh as a torchtitan, megatron, accelerate or torch configuration. Repeatable."),
        ),
    ] = None
    plot: Annotated[
        Path | None, drawing("a still picture", "Plot throughput against memory, as .png, .svg or .pdf.")
    ] = None
    devices: Annotated[
        str | None, Option(metavar="LIST", help="Numbers of devices, such as 8,64,512. Default: the whole cluster.")
    ] = None
    fill: Annotated[
        float, Option(min=0.1, max=1.0, metavar="SHARE", help="Maximum fraction of device memory to use.")
    ] = FILL
    mesh: Annotated[str | None, Option(metavar="NAME", help="Predict only this mesh, by its name in the list.")] = None
    runs: Annotated[
        Path | None, Option(metavar="FILE.csv", help="Your own training runs, to adapt the predictions to.")
    ] = None
    what_if: Annotated[
        str | None,
        Option(
            "--what-if",
            metavar="KEY=VALUES",
            help=("Also search with other values: preset=dgx-h100,dgx-b200, sequence=..., batch=... Repeatable."),
        ),
    ] = None
    deadline: Annotated[
        str | None,
        Option(metavar="TIME", help="Deadline for --target-tokens, such as '30 days'. Default: plan.deadline."),
    ] = None
    budget: Annotated[
        float | None,
        Option(min=0.01, metavar="DOLLARS", help="Budget for --target-tokens in dollars. Default: plan.budget."),
    ] = None
    tokens: float | None = None  # of the whole training, by [plan]

    @property
    def hours(self) -> float:
        """The deadline. Raise InputError for one that is no time."""
        with refusals_about("--deadline"):
            return inf if self.deadline is None else parse_hours(self.deadline)

    def check(self) -> None:
        """Raise InputError for a name that is not known, bits that are not frozen, and limits of what has no length."""
        for option, value, known in (
            ("precision", self.precision, PRECISIONS), ("framework", self.framework, FRAMEWORKS),
            ("optimizer", self.optimizer, OPTIMIZERS), ("offload", self.offload, OFFLOADED), ("bits", self.bits, BITS),
        ):  # fmt: skip
            if value is not None:
                check_known(option, value, tuple(known))
        if self.bits != "16" and not self.lora:
            raise InputError(f"--bits {self.bits} requires --lora RANK, because only frozen weights can be quantized")
        assert self.hours > 0  # raises InputError

    def with_plan(self, spread: SpreadTraining) -> "SearchOptions":
        """Return the options with the goals of the scenario's ``[plan]``, where they say none. Raise InputError."""
        plan, tokens = spread.plan, spread.plan.target_tokens
        if plan.target_samples is not None and is_transformer(spread.training.model):
            tokens = plan.target_samples * parse_transformer(spread.training.model)[1].context
        if tokens is None and (self.deadline is not None or self.budget is not None):
            raise InputError("--deadline and --budget require --target-tokens, for example --target-tokens 1e12")
        deadline = self.deadline if self.deadline is not None or plan.deadline is None else str(plan.deadline)
        return replace(self, tokens=tokens, deadline=deadline, budget=self.budget or plan.budget)


def find_meshes(scenario: str | Path, options: SearchOptions, overrides: Sequence[str] = ()) -> SearchAnswer:
    """Return the fastest meshes of a scenario's training for each number of devices. Raise InputError.

    >>> found = find_meshes("examples/llama2_70b.toml", SearchOptions(devices="64"))  # doctest: +SKIP
    """
    options.check()
    base = read_spread_training(scenario, overrides)
    options = options.with_plan(base)
    key, values = (None, [""]) if options.what_if is None else parse_sweep(options.what_if, "--what-if")
    cases, found, notes, refused = list[Case](), list[FoundMeshes](), list[str](), list[str]()
    varied = list[tuple[str, SpreadTraining, SearchOptions, list[int]]]()
    for value in values:
        try:
            spread, used = (base, options) if key is None else _varied(scenario, overrides, options, key, value)
            varied.append((value, spread, used, _numbers(spread, used)))
        except InputError as error:
            refused.append(f"{key} {value}: {error}.")
            if key is None:
                raise
    every = [number for *_, counts in varied for number in counts]
    for value, spread, used, counts in varied:
        try:
            priced = find_price(spread, base, every if KEYS.get(key or "", key) == KEYS["nodes"] else counts)
            for devices in counts:
                job = _job(spread, devices, used)
                belief, told = find_belief(job.gpu, job.framework, used.runs)
                one = search(job, belief, used.fill)
                fitting = len(one.order)
                if options.mesh is not None:
                    one, beside = keep_mesh(one, options.mesh)
                    notes.append(beside)
                cases.append(replace(_case(value, one, priced.dollars, used), fitting=fitting))
                found.append(one)
                notes += [
                    note for note in (told, _unseen(job.gpu), priced.note) if note is not None and note not in notes
                ]
        except InputError as error:
            refused.append(f"{key} {value}: {error}.")
            if key is None:
                raise
    if not cases:
        raise InputError(refused[0].removesuffix("."))
    if found[0].job.framework == FRAMEWORKS[0]:
        notes.append("No framework is named: its factor is taken as 1, where those published lie within 10 %.")
    if {*base.training.parallelism} - {"experts", "top_k"}:
        notes.append("All meshes are searched; that of training.parallelism alone is predicted by `predict --devices`.")
    return SearchAnswer(
        title=base.title, file=str(base.path), model=base.training.model, precision=found[0].job.precision,
        notes=tuple(notes), found=tuple(found), cases=tuple(cases), key=key, refused=tuple(refused),
        tokens=options.tokens,
    )  # fmt: skip


def _job(spread: SpreadTraining, devices: int, options: SearchOptions) -> MeshJob:
    """Return what is to be searched for so many devices. Raise InputError for a model or cluster that it is not for."""
    training, cluster = spread.training, mesh_cluster(spread.cluster)
    host = cluster.host
    if host is None:
        raise InputError('search requires a GPU cluster: set cluster.preset and transport = "nccl"')
    if cluster.gpu is None:
        raise InputError(
            f"search requires the data sheet of a GPU, and the catalogue has none of that of {spread.cluster.title}; "
            "`ringlab list hardware` shows the GPUs; predict --devices takes training.compute = {rate = 500.0}"
        )
    if not is_transformer(training.model):
        raise InputError(
            f"model {quote(training.model)} is not a transformer with known dimensions; use {EXAMPLE}, or one of "
            + ", ".join(TRANSFORMERS)
        )
    kind, shape = parse_transformer(training.model)
    node = host.gpus
    if devices > node and not host.nic:
        raise InputError(
            f"{devices} devices of {spread.cluster.title}: hosts have {node} devices and no network "
            f"is described; set cluster.nic and cluster.net, or use at most {node} devices"
        )
    if devices > node and devices % node:
        raise InputError(
            f"{devices} devices do not fill hosts of {node}; use a multiple of {node}, or fewer than {node}"
        )
    parallelism, precision = spread.parallelism, options.precision or training.precision
    check_precision(host.device.name, precision, "--precision")
    return MeshJob(
        kind=kind,
        shape=shape,
        seq=shape.context,
        batch=options.batch or training.batch_size * devices,
        host=host,
        gpus=devices,
        precision=precision,
        framework=options.framework or training.framework,
        is_compiled=options.is_compiled,
        optimizer=options.optimizer or named_optimizer(training),
        offload=options.offload,
        lora=options.lora,
        frozen_bits=options.bits,
        experts=parallelism.experts,
        top_k=parallelism.top_k if parallelism.experts else 0,
        with_zero_bubble=options.with_zero_bubble,
    )


def _unseen(gpu: str) -> str | None:
    said = describe_unpublished([gpu])
    return None if is_published(gpu) else f"{said[0].upper()}{said[1:]}."


def _varied(
    scenario: str | Path, overrides: Sequence[str], options: SearchOptions, key: str, value: str
) -> tuple[SpreadTraining, SearchOptions]:
    """Return the scenario and options with one value of what varies. Raise InputError."""
    if key not in OPTIONS:
        name = KEYS.get(key, key)
        if "." not in name:
            raise InputError(f"--what-if: unknown key {quote(key)}; {suggest(key, (*KEYS, *OPTIONS))}, or section.key")
        return read_spread_training(scenario, (*overrides, f"{name}={value}")), options
    least, most = WHOLE.get(key, (0, 0))
    if key in WHOLE and not (value.isascii() and value.isdigit() and least <= int(value[:12]) <= most):
        raise InputError(f"--what-if {key}={quote(value)} must be an integer from {least} to {most}")
    change: dict[str, Any] = {key: int(value) if key in WHOLE else value}
    changed = replace(options, **change)
    changed.check()
    return read_spread_training(scenario, overrides), changed


def _numbers(spread: SpreadTraining, options: SearchOptions) -> list[int]:
    if options.devices is None:
        return [spread.cluster.world_size]
    return parse_world_sizes(options.devices, "--devices", most=1 << 20)


def _case(value: str, found: FoundMeshes, price: float | None, asked: SearchOptions) -> Case:
    chosen, job = [int(number) for number in found.order[: asked.top]], found.job
    losers = tuple(why_others_lose(found)) if asked.why and len(found.order) > 1 else ()
    if not chosen:
        nearest = least_memory(found)
        losers = ((found.searched[nearest].name, why_too_large(found, nearest)),)
    remedies = () if chosen else what_would_fit(job, found.belief, asked.fill)
    return Case(
        value=value, devices=job.gpus, machine=job.gpu, batch=job.batch, seq=job.seq, meshes=len(found.searched),
        fitting=len(found.order), best=_rows(found, chosen, price, asked),
        tries=_rows(found, choose_tries(found), price, asked), losers=losers,
        learning=_learning(found) if len(found.order) > 1 else None,
        would_fit=tuple(
            RemedyRow(change=one.change, best=_rows(one.found, [int(one.found.order[0])], price, asked)[0])
            for one in remedies
        ),
    )  # fmt: skip


def _learning(found: FoundMeshes) -> Learning:
    numbers, before, after = choose_runs(found)
    names = tuple(found.searched[number].name for number in numbers)
    return Learning(runs=names, within=before, within_after=after)


def _rows(found: FoundMeshes, numbers: Sequence[int], price: float | None, asked: SearchOptions) -> tuple[MeshRow, ...]:
    factors = found.factors(numbers) if numbers else ()
    return tuple(
        _row(found, number, float(factor), price, asked) for number, factor in zip(numbers, factors, strict=True)
    )


def _row(found: FoundMeshes, number: int, factor: float, price: float | None, asked: SearchOptions) -> MeshRow:
    mesh, seconds, rate = found.searched[number], float(found.step_s[number]), float(found.tokens_per_s[number])
    dollars = None if price is None else price * found.job.gpus / 3600 / rate * 1e9
    mfu = float(found.mfu[number])
    return MeshRow(
        mesh=mesh.name, tensor=mesh.tp, pipeline=mesh.pp, context=mesh.cp, expert=mesh.ep, data=mesh.dp,
        virtual=mesh.vp, schedule=mesh.schedule, strategy=mesh.sharding, micro_batch=mesh.micro_batch,
        microbatches=mesh.grad_accum, recompute=mesh.recompute, step_s=seconds,
        step_interval=(seconds / factor, seconds * factor), tokens_per_s=rate,
        parts={name: float(one[number]) for name, one in found.parts.items()},
        tokens_interval=(rate / factor, rate * factor), mfu=mfu,
        tflops_per_gpu=mfu * float(found.columns.peak[number]) / 1e12,
        memory_bytes=float(found.memory["total"][number]),
        memory_parts={name: float(found.memory[name][number]) for name in MEMORY_PARTS},
        host_bytes=float(found.host_bytes[number]), chance_to_run=float(found.chance[number]),
        dollars_per_billion_tokens=dollars,
        dollars_interval=None if dollars is None else (dollars / factor, dollars * factor),
        money=None if asked.tokens is None else _money(asked, rate, factor, None if price is None else
                                                       price * found.job.gpus),
    )  # fmt: skip


def _money(asked: SearchOptions, rate: float, factor: float, price: float | None) -> Money:
    """Return what so many tokens take and cost, at dollars an hour of all devices, and how likely within the limits."""
    assert asked.tokens is not None
    hours = asked.tokens / rate / 3600
    low, high = hours / factor, hours * factor
    limit = min(asked.hours, (asked.budget or inf) / price if price is not None else inf)
    chance = 1.0 if limit == inf else NormalDist(log(hours), log(factor) / Z_80).cdf(log(limit))
    return Money(
        hours=hours, hours_interval=(low, high), dollars=None if price is None else hours * price,
        dollars_interval=None if price is None else (low * price, high * price), chance_within_limits=chance,
    )  # fmt: skip


def parse_export(text: str) -> tuple[str, Path]:
    """Return the framework and the file of an export. Raise InputError.

    >>> parse_export("megatron=args.txt")
    ('megatron', PosixPath('args.txt'))
    """
    name, equals, file = text.partition("=")
    if name not in FORMATS:
        raise InputError(f"--export {quote(text)}: unknown format {quote(name)}; {suggest(name, FORMATS)}")
    if not (equals and file):
        raise InputError(f"--export {quote(text)}: expected FORMAT=FILE, such as {name}=FILE")
    return name, Path(file)


@with_groups
def search_meshes(
    scenario: ScenarioArg,
    *,
    options: SearchOptions,
    size: SizeOptions,
    json_to: JsonOpt = None,
    set_keys: SetOpt = None,
) -> None:
    """Find the fastest device mesh (data, tensor, pipeline, context and expert parallelism) for a language model."""
    exports = [parse_export(one) for one in options.export or ()]
    check_outputs(json_to, options.plot, *(file for _, file in exports))
    with computing(TerminalProgress(), "searching meshes"):
        answer = find_meshes(scenario, options, (*(set_keys or ()), *size.overrides))
    written = [write_mesh(answer.found[-1], answer.model, name) for name, _ in exports]

    def write_exports() -> None:
        console = make_console(quiet=json_to == "-")
        for (name, file), (number, text) in zip(exports, written, strict=True):
            write_text(file, text)
            console.print(f"For {name}, {answer.found[-1].searched[number].name}: {file}", soft_wrap=True)

    deliver(answer, json_to, draw_to(answer, options.plot, json_to), write_exports)
