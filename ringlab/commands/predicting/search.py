"""``ringlab search``: all meshes for a model on devices, the fastest first: rate, memory, price, and three to try."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from collectives.errors import InputError
from collectives.output_files import write_text
from collectives.quoting import quote, suggest
from collectives.records.transformer_shapes import EXAMPLE, TRANSFORMERS, is_transformer, parse_transformer
from collectives.training.recipe import check_known
from ringlab.jobs.mesh_files import FORMATS, write_mesh
from ringlab.shared.answer import NOT_IN_JSON, Answer, AnswerRecord
from ringlab.shared.console import make_console
from ringlab.shared.options import JsonOpt, ScenarioArg, SetOpt, with_groups
from ringlab.shared.output import check_outputs, deliver
from ringlab.shared.progress import TerminalProgress, computing
from ringlab.shared.ranges import parse_world_sizes
from ringlab.table import Part, Sentences, Table, format_digits
from scenarios.loader import SpreadTraining, read_spread_training
from simcomm.cluster.hardware_parts import find_link
from simcomm.mesh.clusters import MeshCluster
from simcomm.mesh_search.columns import FRAMEWORKS, to_columns
from simcomm.mesh_search.runs import has_time, read_table
from simcomm.mesh_search.search import (
    FILL,
    FoundMeshes,
    MeshJob,
    choose_tries,
    pareto_front,
    search,
    what_would_fit,
    why_slower,
)
from simcomm.mesh_search.uncertainty import read_shipped
from viz.file_types import check_file

if TYPE_CHECKING:
    from viz.meshes import MeshDots

PARTS = ("compute", "tensor", "context", "bubble", "p2p", "data", "optimizer")


@dataclass(frozen=True)
class SearchOptions:
    """What is searched, beside the scenario."""

    devices: Annotated[
        str | None, typer.Option(metavar="LIST", help="Numbers of devices: 8,64,512; else all of the cluster.")
    ] = None
    batch: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Sequences in a step of all devices; else batch_size a device."),
    ] = None
    seq: Annotated[
        int | None, typer.Option(min=16, metavar="N", help="Tokens of a sequence; else the model's context.")
    ] = None
    framework: Annotated[
        str, typer.Option(metavar="NAME", help="What trains: torchtitan, nanotron, megatron, llm-foundry, ...")
    ] = "other"
    is_compiled: Annotated[bool, typer.Option("--compile", help="Layers are compiled.")] = False
    fill: Annotated[
        float, typer.Option(min=0.1, max=1.0, metavar="SHARE", help="Of a device's memory that may be taken.")
    ] = FILL
    runs: Annotated[
        Path | None, typer.Option(metavar="FILE.csv", help="Runs of yours, to which the model is adapted.")
    ] = None


@dataclass(frozen=True, kw_only=True)
class MeshRow(AnswerRecord):
    """A mesh with what is predicted of it."""

    mesh: str
    tensor: int
    pipeline: int
    context: int
    data: int
    virtual: int
    form: str
    micro_batch: int
    microbatches: int
    recompute: str
    step_s: float
    step_interval: tuple[float, float]
    parts: dict[str, float]
    tokens_per_s: float
    tokens_interval: tuple[float, float]
    mfu: float
    tflops_per_gpu: float
    memory_bytes: float
    memory_parts: dict[str, float]
    chance_to_fit: float
    dollars_per_billion_tokens: float | None = None
    slower: str | None = None  # what makes it slower than the fastest


@dataclass(frozen=True, kw_only=True)
class Case(AnswerRecord):
    """What was found for one number of devices."""

    devices: int
    batch: int
    meshes: int
    fitting: int
    best: tuple[MeshRow, ...]
    tries: tuple[MeshRow, ...]
    would_fit: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class SearchAnswer(Answer):
    """What ``ringlab search`` found."""

    kind = "search"
    title: str
    file: str
    model: str
    machine: str
    seq: int
    precision: str
    notes: tuple[str, ...]
    cases: tuple[Case, ...]
    found: tuple[FoundMeshes, ...] = field(default=(), compare=False, metadata=NOT_IN_JSON)

    def show(self) -> Iterator[Part]:
        """Yield for each number of devices its fastest meshes and the three to try."""
        for case in self.cases:
            head = f"{self.model} on {case.devices} x {self.machine}, {case.batch} sequences of {self.seq} tokens"
            if not case.best:
                yield f"{head}: none of {case.meshes} meshes fits."
                more = f"; what would: {', '.join(case.would_fit)}" if case.would_fit else ""
                yield f"Recompute, divide more, or take other devices{more}."
                continue
            yield _rates(head, case)
            yield _seconds(case)
            if any(row.slower for row in case.best):
                yield Table(None, ["mesh", "slower than the fastest by"], _reasons(case), words=2)
            yield Sentences((_summary(case), *_tries(case)), wrap=True)
        if self.notes:
            yield Sentences(self.notes, wrap=True)

    def draw(self, path: Path) -> None:
        """Draw rate against memory, with the meshes that no other beats in both."""
        from viz.meshes import draw_meshes

        draw_meshes(f"{self.model} on {self.machine}", [_dots(one) for one in self.found], path)


def _dots(found: FoundMeshes) -> "MeshDots":
    from viz.meshes import MeshDots

    described = [found.describe(number) for number in range(len(found.varied))]
    return MeshDots(
        title=f"{found.job.gpus} devices, {found.job.batch} sequences of {found.job.seq}",
        rates=found.tokens_per_s.tolist(), memory_gib=(found.memory.total / 2**30).tolist(),
        forms=[_form(one) for one in described], names=[name_mesh(one) for one in described],
        front=pareto_front(found), limit_gib=float(found.meshes.memory_bytes[0]) / 2**30,
    )  # fmt: skip


def _form(mesh: Mapping[str, Any]) -> str:
    axes = [name for name, size in (("tensor", mesh["tp"]), ("pipeline", mesh["pp"])) if size > 1]
    return " and ".join(axes) if axes else str(mesh["sharding"])


def _rates(title: str, case: Case) -> Table:
    rows = []
    for row in case.best:
        low, high = row.tokens_interval
        price = "-" if row.dollars_per_billion_tokens is None else format_digits(row.dollars_per_billion_tokens)
        rows.append([
            row.mesh, f"{row.tokens_per_s:,.0f}", f"{low:,.0f} to {high:,.0f}", f"{row.mfu:.0%}",
            format_digits(row.tflops_per_gpu), price,
        ])  # fmt: skip
    return Table(title, ["mesh", "tokens/s", "80 % within", "MFU", "TFLOP/s\na GPU", "$ a billion\ntokens"], rows)


def _seconds(case: Case) -> Table:
    shown = [name for name in PARTS if any(row.parts[name] > 0.005 * row.step_s for row in case.best)]
    rows = [
        [
            row.mesh, format_digits(row.step_s), *(f"{row.parts[name] / row.step_s:.0%}" for name in shown),
            f"{row.memory_bytes / 2**30:.1f}", f"{row.chance_to_fit:.0%}",
        ]
        for row in case.best
    ]  # fmt: skip
    return Table(None, ["mesh", "step\n(s)", *shown, "memory\n(GiB)", "fits"], rows)


def _reasons(case: Case) -> list[list[str]]:
    return [[row.mesh, row.slower] for row in case.best if row.slower]


def _summary(case: Case) -> str:
    return f"{case.meshes} meshes, of which {case.fitting} fit; the fastest: {case.best[0].mesh}."


def _tries(case: Case) -> Iterator[str]:
    if len(case.tries) > 1:
        yield "Try, as they differ in what is uncertain: " + "; ".join(row.mesh for row in case.tries) + "."


def make_job(training: SpreadTraining, devices: int, options: SearchOptions) -> MeshJob:
    """Return what is to be searched for so many devices. Raise InputError for a model or cluster that it is not for."""
    asked, system = training.training, getattr(training.cluster, "system", None)
    if system is None:
        raise InputError('search is about described GPU machines: give cluster.preset and transport = "nccl"')
    if not is_transformer(asked.model):
        raise InputError(
            f"model {quote(asked.model)} is no transformer by its dimensions; give {EXAMPLE}, or a name: "
            + ", ".join(TRANSFORMERS)
        )
    kind, shape = parse_transformer(asked.model)
    seq = options.seq or shape.context
    gpu = MeshCluster(training.cluster).gpu or system.gpu.name
    nic = system.nic / system.gpus if system.nic else 0.0
    pcie = find_link(f"PCIe {system.pcie}.0 x{system.lanes}").bandwidth
    if devices > system.gpus and not nic:
        raise InputError(f"{training.cluster.title}: its network is not known; give nic and ports")
    return MeshJob(
        kind=kind, shape=shape, seq=seq,
        batch=options.batch or asked.batch_size * devices,
        gpu=gpu, gpus=devices, node_gpus=max(system.gpus, system.domain or 1),
        nic_rate=max(nic, 1e-3) * 1e9, peer_rate=pcie if system.link == "pcie" else None,
        precision=asked.precision, framework=options.framework,
        is_compiled=options.is_compiled,
    )  # fmt: skip


def find_meshes(training: SpreadTraining, options: SearchOptions, top: int = 10, why: bool = False) -> SearchAnswer:
    """Return the fastest meshes of a scenario's training for each number of devices. Raise InputError."""
    check_known("framework", options.framework, FRAMEWORKS)
    whole = training.cluster.world_size
    numbers = parse_world_sizes(options.devices, "--devices", most=1 << 20) if options.devices else [whole]
    parameters, notes = adapted(options.runs)
    jobs = [make_job(training, devices, options) for devices in numbers]
    found = [search(job, parameters, options.fill) for job in jobs]
    if options.framework == "other":
        notes = (*notes, "No framework is named: its factor is taken as 1, where those published lie within 10 %.")
    asked = training.training
    return SearchAnswer(
        title=training.title, file=str(training.path), model=asked.model, machine=jobs[0].gpu, seq=jobs[0].seq,
        precision=asked.precision, notes=notes, found=tuple(found),
        cases=tuple(_case(one, asked.price_per_hour, top, why, options.fill) for one in found),
    )  # fmt: skip


def adapted(runs: Path | None) -> tuple[Mapping[str, float], tuple[str, ...]]:
    """Return the shipped parameters, or those that a user's runs make of them, and what to say of it."""
    shipped = read_shipped().parameters
    if runs is None:
        return shipped, ()
    from simcomm.mesh_search.fit import fit  # scipy's optimizers are slow to import

    table, refused = read_table(runs)
    timed = [run for run in table if has_time(run)]
    if not timed:
        reasons = "; ".join(refused) or "no row says step_s or tokens_per_s_per_gpu"
        raise InputError(f"{runs}: no run can be used: {reasons}")
    measured = np.array([run["step_s"] for run in timed])
    found = fit(to_columns(timed), measured, ["yours"] * len(timed), shipped)
    left = f"; {sum(refused.values())} left out: {'; '.join(refused)}" if refused else ""
    return found, (f"Adapted to {len(timed)} runs of {runs}{left}.",)


def _case(found: FoundMeshes, price: float | None, top: int, why: bool, fill: float) -> Case:
    chosen = [int(number) for number in found.order[:top]]
    rows = tuple(_row(found, number, price, chosen[0] if why and number != chosen[0] else None) for number in chosen)
    return Case(
        devices=found.job.gpus, batch=found.job.batch, meshes=len(found.varied), fitting=len(found.order), best=rows,
        tries=tuple(_row(found, number, price, None) for number in choose_tries(found)),
        would_fit=() if rows else tuple(what_would_fit(found.job, fill)),
    )  # fmt: skip


def _row(found: FoundMeshes, number: int, price: float | None, than: int | None) -> MeshRow:
    run, seconds = found.describe(number), float(found.step_s[number])
    rate, factor = float(found.tokens_per_s[number]), float(found.factor[number])
    parts = found.parts.take(number)
    memory = {name: float(getattr(found.memory, name)[number]) for name in found.memory.__dataclass_fields__}
    dollars = None if price is None else price * found.job.gpus / 3600 / rate * 1e9
    mfu = float(found.mfu[number])
    return MeshRow(
        mesh=name_mesh(run), tensor=run["tp"], pipeline=run["pp"], context=run["cp"], data=run["dp"],
        virtual=run["vp"], form=run["sharding"], micro_batch=run["micro_batch"], microbatches=run["grad_accum"],
        recompute=run["recompute"], step_s=seconds, step_interval=(seconds / factor, seconds * factor), parts=parts,
        tokens_per_s=rate, tokens_interval=(rate / factor, rate * factor), mfu=mfu,
        tflops_per_gpu=mfu * float(found.meshes.matrix[number]) / 1e12,
        memory_bytes=float(found.memory.total[number]), memory_parts=memory,
        chance_to_fit=float(found.chance[number]), dollars_per_billion_tokens=dollars,
        slower=None if than is None else why_slower(found, number, than),
    )  # fmt: skip


def name_mesh(run: Mapping[str, Any]) -> str:
    """Return a mesh in a few words.

    >>> name_mesh({"dp": 8, "tp": 2, "pp": 1, "cp": 1, "vp": 1, "sharding": "zero3", "micro_batch": 4,
    ...            "recompute": "full"})
    'zero3 8, tp 2, mb 4, full'
    """
    axes = [f"{run['sharding']} {run['dp']}"]
    axes += [f"{name} {run[name]}" for name in ("tp", "cp", "pp", "vp") if run[name] > 1]
    again = [] if run["recompute"] == "none" else [run["recompute"]]
    return ", ".join([*axes, f"mb {run['micro_batch']}", *again])


def parse_export(text: str) -> tuple[str, Path]:
    """Return the framework and the file of an export. Raise InputError.

    >>> parse_export("megatron=args.txt")
    ('megatron', PosixPath('args.txt'))
    """
    name, equals, file = text.partition("=")
    if name not in FORMATS:
        raise InputError(f"--export {quote(text)}: {quote(name)} is not known; {suggest(name, FORMATS)}")
    if not (equals and file):
        raise InputError(f"--export {quote(text)}: name a file, such as {name}=FILE")
    return name, Path(file)


@with_groups
def search_meshes(
    scenario: ScenarioArg,
    *,
    top: Annotated[int, typer.Option(min=1, max=1000, metavar="N", help="Meshes that are listed.")] = 10,
    why: Annotated[bool, typer.Option("--why", help="Say of each what makes it slower than the fastest.")] = False,
    export: Annotated[
        list[str] | None,
        typer.Option(metavar="FORMAT=FILE", help="Write the fastest for torchtitan, megatron or accelerate."),
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw rate against memory: .png, .svg or .pdf.")
    ] = None,
    json_to: JsonOpt = None,
    set_keys: SetOpt = None,
    options: SearchOptions,
) -> None:
    """Search all meshes of data, tensor, pipeline and context parallelism for a language model on GPUs."""
    if plot is not None:
        check_file(plot, "a picture of meshes")
    exports = [parse_export(one) for one in export or ()]
    check_outputs(json_to, plot, *(file for _, file in exports))
    training = read_spread_training(scenario, set_keys or ())
    with computing(TerminalProgress(), "searching meshes"):
        answer = find_meshes(training, options, top, why)
    written = [write_mesh(answer.found[-1], answer.model, name) for name, _ in exports]

    def draw() -> None:
        if plot is not None:
            answer.draw(plot)
            make_console(quiet=json_to == "-").print(f"The picture: {plot}", soft_wrap=True)

    def write_exports() -> None:
        console = make_console(quiet=json_to == "-")
        for (name, file), (number, text) in zip(exports, written, strict=True):
            write_text(file, text)
            mesh = name_mesh(answer.found[-1].describe(number))
            console.print(f"For {name}, {mesh}: {file}", soft_wrap=True)

    deliver(answer, json_to, draw, write_exports)
