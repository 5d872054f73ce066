"""``ringlab search``: find the fastest device meshes for a language model, with their memory and cost."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import inf, log
from pathlib import Path
from statistics import NormalDist
from typing import Annotated, Any

import viz
from collectives.checks import check_known
from collectives.errors import InputError
from collectives.output_files import write_text
from collectives.quoting import quote, suggest
from collectives.records.model_profile import EXAMPLE, TRANSFORMERS, is_transformer, parse_transformer
from collectives.training.parallelism import FRAMEWORKS
from planner.beliefs import Z_80
from planner.clusters import describe_network, host_of_cluster
from planner.gpus import PRECISIONS, describe_unpublished, is_published
from planner.jobs import BITS, OFFLOADED, OPTIMIZERS
from planner.memory import FILL
from planner.memory import PARTS as MEMORY_PARTS
from planner.search import (
    FoundMeshes,
    MeshJob,
    SearchedMesh,
    choose_runs,
    choose_tries,
    keep_mesh,
    least_memory,
    pareto_front,
    search,
    what_would_fit,
    why_others_lose,
    why_too_large,
)
from planner.step import PARTS
from ringlab.commands.predicting.mesh_files import check_format, write_mesh
from ringlab.commands.predicting.predict_sweep import parse_sweep
from ringlab.shared.answer import NOT_IN_JSON, Answer, AnswerRecord
from ringlab.shared.failures import refusals_about
from ringlab.shared.machines import find_price
from ringlab.shared.models import check_precision, find_belief, named_optimizer
from ringlab.shared.options import JsonOpt, ScenarioArg, SetOpt, SizeOptions, drawing, option, with_groups
from ringlab.shared.output import check_outputs, deliver, make_console
from ringlab.shared.progress import TerminalProgress, computing, draw_to
from ringlab.shared.ranges import parse_world_sizes
from ringlab.table import NOTHING, Bounds, Line, Part, Sentences, Table, format_digits, format_interval, format_whole
from scenarios.loader import SpreadTraining, read_spread_training
from scenarios.sections import parse_hours

KEYS = {  # short names of scenario keys that --what-if varies
    "preset": "cluster.preset", "nodes": "cluster.nodes", "model": "training.model",
    "batch_size": "training.batch_size", "price": "training.price_per_hour", "sequence": "training.sequence",
    "framework": "training.framework",
}  # fmt: skip
OPTIONS = ("batch", "precision", "optimizer", "offload", "lora", "bits")  # options that --what-if varies
INTEGERS = {"batch": (1, 10**9), "lora": (0, 4096)}  # with the smallest and the largest value
BROKEN = {  # headings that are too wide for a column
    "compute": "com-\npute", "pipeline": "pipe-\nline", "optimizer": "opti-\nmizer", "processes": "pro-\ncesses",
    "stragglers": "strag-\nglers",
}  # fmt: skip
GIB = 2**30
TOKENS, BILLION = "tokens/s (80 %)", "$ a billion\ntokens"
LIKELY = 0.5  # smallest probability of a recommended candidate


@dataclass(frozen=True)
class SearchOptions:
    """The options of ``ringlab search``: changes to the scenario's training, meshes to list, and files to write."""

    batch: int | None = option(
        None,
        help="Global batch size in sequences. Default: the scenario's batch_size times the number of devices.",
        min=1,
        metavar="N",
    )
    precision: str | None = option(
        None, help="Precision: bf16, fp8, mxfp8, nvfp4, tf32 or float32. Default: the scenario's.", metavar="NAME"
    )

    is_compiled: bool = option(False, "--compile", help="Assume that layers run under torch.compile.")
    optimizer: str | None = option(
        None, help="Optimizer: adamw, adamw8bit or sgd. Default: the scenario's, or adamw.", metavar="NAME"
    )
    offload: str = option(
        "none",
        help="Offload to host memory: none, optimizer (states) or parameters (and states).",
        metavar="WHAT",
    )
    lora: int = option(
        0, help="Train LoRA adapters of this rank; the weights are frozen.", min=0, max=4096, metavar="RANK"
    )
    bits: str = option("16", help="Bits per frozen weight. 4 is QLoRA.", metavar="16|8|4")
    with_zero_bubble: bool = option(False, "--zero-bubble", help="Include zero-bubble pipeline schedules.")
    top: int = option(10, help="Number of meshes to list.", min=1, max=1000, metavar="N")
    why: bool = option(False, help="Explain why each of the other kinds of meshes is slower.")
    export: list[str] | None = option(
        None,
        help="Write the fastest mesh as a torchtitan, megatron or accelerate configuration. Repeatable.",
        metavar="FORMAT=FILE",
    )
    plot: Annotated[Path | None, drawing("a plot", "Plot throughput against memory, as .png, .svg or .pdf.")] = None
    devices: str | None = option(
        None, help="Numbers of devices, such as 8,64,512. Default: the whole cluster.", metavar="LIST"
    )
    fill: float = option(FILL, help="Maximum fraction of device memory to use.", min=0.1, max=1.0, metavar="SHARE")
    mesh: str | None = option(
        None, help="Compare a mesh, by its name in the list, with the fastest mesh.", metavar="NAME"
    )
    runs: Path | None = option(
        None, help="Table of your own training runs, used to adapt the predictions.", metavar="FILE.csv"
    )
    what_if: str | None = option(
        None,
        help="Repeat the search for each value of a key, such as preset=dgx-h100,dgx-b200. "
        "Other keys: sequence, batch, precision, ...",
        metavar="KEY=VALUES",
    )
    deadline: str | None = option(
        None, help="Deadline for --target-tokens, such as '30 days'. Default: plan.deadline.", metavar="TIME"
    )
    budget: float | None = option(
        None, help="Budget for --target-tokens in dollars. Default: plan.budget.", min=0.01, metavar="DOLLARS"
    )
    tokens: float | None = None  # of the whole training, from [plan]

    @property
    def hours(self) -> float:
        """The deadline in hours. Raise InputError for an invalid time."""
        with refusals_about("--deadline"):
            return inf if self.deadline is None else parse_hours(self.deadline)

    def check(self) -> None:
        """Raise InputError for an unknown name, quantized weights without LoRA, or an invalid deadline."""
        for name, value, known in (
            ("precision", self.precision, PRECISIONS), ("optimizer", self.optimizer, OPTIMIZERS),
            ("offload", self.offload, OFFLOADED), ("bits", self.bits, BITS),
        ):  # fmt: skip
            if value is not None:
                check_known(name, value, known)
        if self.bits != "16" and not self.lora:
            raise InputError(f"--bits {self.bits} requires --lora RANK, because only frozen weights can be quantized")
        assert self.hours > 0  # raises InputError

    def with_plan(self, spread: SpreadTraining) -> "SearchOptions":
        """Return the options, with missing goals taken from the scenario's ``[plan]``.

        Raise InputError if a deadline or a budget is set without a number of tokens.
        """
        plan, tokens = spread.plan, spread.plan.target_tokens
        if plan.target_samples is not None and is_transformer(spread.training.model):
            tokens = plan.target_samples * parse_transformer(spread.training.model)[1].context
        if tokens is None and (self.deadline is not None or self.budget is not None):
            raise InputError("--deadline and --budget require --target-tokens, for example --target-tokens 1e12")
        deadline = self.deadline if self.deadline is not None or plan.deadline is None else str(plan.deadline)
        return replace(self, tokens=tokens, deadline=deadline, budget=self.budget or plan.budget)


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
    exports = [parse_export(text) for text in options.export or ()]
    check_outputs(json_to, options.plot, *(file for _, file in exports))
    with computing(TerminalProgress(), "searching meshes"):
        answer = find_meshes(scenario, options, (*(set_keys or ()), *size.overrides))
    written = [write_mesh(answer.found[-1], answer.model, name) for name, _ in exports]

    def write_exports() -> None:
        console = make_console(quiet=json_to == "-")
        for (name, file), (number, text) in zip(exports, written, strict=True):
            write_text(file, text)
            console.print(f"{name} configuration of {answer.found[-1].searched[number].name}: {file}", soft_wrap=True)

    deliver(answer, json_to, draw_to(answer, options.plot, json_to), write_exports)


def parse_export(text: str) -> tuple[str, Path]:
    """Parse the format and the file of ``--export``. Raise InputError if the format is unknown or the file is missing.

    >>> parse_export("megatron=args.txt")
    ('megatron', PosixPath('args.txt'))
    """
    name, equals, file = text.partition("=")
    check_format(name)
    if not (equals and file):
        raise InputError(f"--export {quote(text)}: expected FORMAT=FILE, such as {name}=FILE")
    return name, Path(file)


@dataclass(frozen=True, kw_only=True)
class Money(AnswerRecord):
    """The time and cost of the whole training, with 80 % intervals."""

    hours: float
    hours_interval: Bounds
    dollars: float | None = None
    dollars_interval: Bounds | None = None
    chance_within_limits: float | None = None

    @property
    def days(self) -> str:
        """The days with their interval, as text."""
        return format_interval(self.hours / 24, (self.hours_interval[0] / 24, self.hours_interval[1] / 24))

    @property
    def cost(self) -> str:
        """The dollars with their interval as text, or a dash."""
        return format_interval(self.dollars, self.dollars_interval, format_whole)


@dataclass(frozen=True, kw_only=True)
class MeshRow(AnswerRecord):
    """A mesh with its predicted step time, rates, memory and cost."""

    mesh: str
    tensor: int
    pipeline: int
    context: int
    expert: int
    data: int
    virtual: int
    schedule: str
    strategy: str
    micro_batch: int
    microbatches: int
    recompute: str
    step_s: float
    step_interval: Bounds
    parts: dict[str, float]
    tokens_per_s: float
    tokens_interval: Bounds
    mfu: float
    tflops_per_gpu: float
    memory_bytes: float
    memory_parts: dict[str, float]
    host_bytes: float
    chance_to_run: float
    dollars_per_billion_tokens: float | None = None
    dollars_interval: Bounds | None = None
    money: Money | None = None

    @property
    def tokens(self) -> str:
        """The tokens per second with their interval, as text."""
        return format_interval(self.tokens_per_s, self.tokens_interval, format_whole)

    @property
    def price(self) -> str:
        """The dollars per billion tokens with their interval as text, or a dash."""
        return format_interval(self.dollars_per_billion_tokens, self.dollars_interval)


@dataclass(frozen=True, kw_only=True)
class RemedyRow(AnswerRecord):
    """A change that makes the training fit into memory, and the fastest mesh with it."""

    change: str
    best: MeshRow


@dataclass(frozen=True, kw_only=True)
class Learning(AnswerRecord):
    """A suggestion of runs to measure, and the half-width of the 80 % interval before and after measuring them."""

    runs: tuple[str, ...]
    within: float
    within_after: float


@dataclass(frozen=True, kw_only=True)
class Case(AnswerRecord):
    """The meshes for one number of devices, and for one value of the key that ``--what-if`` varies."""

    value: str
    devices: int
    machine: str
    batch: int
    seq: int
    meshes: int
    fitting: int
    best: tuple[MeshRow, ...]
    tries: tuple[MeshRow, ...] = ()
    learning: Learning | None = None
    losers: tuple[tuple[str, str], ...] = ()  # kinds of meshes with the reasons why they are slower
    would_fit: tuple[RemedyRow, ...] = ()


@dataclass(frozen=True, kw_only=True)
class SearchAnswer(Answer):
    """The result of ``ringlab search``."""

    kind = "search"
    title: str
    file: str
    model: str
    precision: str
    notes: tuple[str, ...]
    cases: tuple[Case, ...]
    key: str | None = None  # the key that varies
    refused: tuple[str, ...] = ()  # invalid values of the key, with reasons
    tokens: float | None = None
    found: tuple[FoundMeshes, ...] = field(default=(), compare=False, metadata=NOT_IN_JSON)

    def show(self) -> Iterator[Part]:
        """Yield an overview if there are several cases, the fastest meshes, and the cost of the training."""
        if len(self.cases) > 1:
            yield self._overview()
        for case in self.cases if self.key is None else ():
            yield from self._case(case)
        if self.tokens is not None:
            yield self._bill()
            yield Sentences(tuple(self._choice()))
        if self.refused or self.notes:
            yield Sentences((*self.refused, *self.notes))

    def _overview(self) -> Table:
        headings = [*self._key_headings(), "fastest that fits", TOKENS, "MFU", BILLION]
        rows = []
        for case in self.cases:
            cells = ["none fits", *[NOTHING] * 3]
            for row in case.best[:1]:
                cells = [row.mesh, row.tokens, f"{row.mfu:.0%}", row.price]
            rows.append([*self._key_cells(case), *cells])
        return Table(f"{self.model}: the fastest of each", headings, rows, words=len(headings) - 3)

    def _bill(self) -> Table:
        headings = [*self._key_headings(), "days (80 %)", "$ (80 %)", "chance"]
        rows = []
        for case, _, money in self._priced():
            chance = NOTHING if money.chance_within_limits is None else f"{money.chance_within_limits:.0%}"
            rows.append([*self._key_cells(case), money.days, money.cost, chance])
        return Table(f"{self.tokens:.3g} tokens", headings, rows)

    def _key_headings(self) -> list[str]:
        return ["devices"] if self.key is None else [self.key, "devices"]

    def _key_cells(self, case: Case) -> list[str]:
        return [str(case.devices)] if self.key is None else [case.value, str(case.devices)]

    def _priced(self) -> list[tuple[Case, MeshRow, Money]]:
        fastest = [(case, case.best[0]) for case in self.cases if case.best]
        return [(case, row, row.money) for case, row in fastest if row.money is not None]

    def _choice(self) -> Iterator[str]:
        priced = self._priced()
        likely = [each for each in priced if (each[2].chance_within_limits or 0.0) >= LIKELY]
        if priced and not likely:
            yield f"No case is likely to train {self.tokens:.3g} tokens within the limits."
        if likely:
            case, row, money = min(likely, key=lambda each: (each[2].dollars is None, each[2].dollars or each[2].hours))
            cost = "" if money.dollars is None else f" for ${money.cost}"
            value = f"{self.key} {case.value}, " if self.key else ""
            yield (
                f"Cheapest within the limits for {self.tokens:.3g} tokens: {value}{case.devices} x {case.machine}, "
                f"{row.mesh}. It takes {money.days} days{cost}, with probability {money.chance_within_limits or 0:.0%}."
            )

    def _case(self, case: Case) -> Iterator[Part]:
        title = f"{self.model} on {case.devices} x {case.machine}, {case.batch} sequences of {case.seq} tokens"
        if not case.best:
            yield from _nothing_fits(title, case)
            return
        rows = [
            [str(number), row.mesh, row.tokens, f"{row.mfu:.0%}", format_digits(row.tflops_per_gpu), row.price]
            for number, row in enumerate(case.best, 1)
        ]
        yield Table(title, ["#", "mesh", TOKENS, "MFU", "TFLOP/s\na GPU", BILLION], rows, words=2)
        yield _step_table(case)
        if case.losers:
            yield Table("Why others are slower", ["kind", "its best mesh"], [[*each] for each in case.losers], words=2)
        yield Sentences(tuple(_sentences(case)))

    def draw(self, path: Path) -> None:
        """Plot throughput against memory, with the Pareto front, as .png, .svg or .pdf."""
        jobs = [
            viz.MeshDots(
                title=f"{each.job.gpus} x {each.job.gpu}, {each.job.batch} sequences of {each.job.seq}",
                rates=each.tokens_per_s.tolist(),
                memory_gib=(each.memory["total"] / GIB).tolist(),
                strategies=[_kind(mesh) for mesh in each.searched],
                names=[mesh.name for mesh in each.searched],
                front=pareto_front(each),
                limit_gib=float(each.columns.memory_bytes[0]) / GIB,
            )
            for each in self.found
        ]
        viz.write_figure(viz.meshes_figure(self.model, jobs), path)


def _kind(mesh: SearchedMesh) -> str:
    axes = [word for size, word in ((mesh.tp, "tensor"), (mesh.pp, "pipeline")) if size > 1]
    return " and ".join(axes) if axes else mesh.sharding


def _step_table(case: Case) -> Table:
    shown = [name for name in PARTS if any(abs(row.parts[name]) > 0.005 * row.step_s for row in case.best)]
    host = ["of a host\n(GiB)"] if any(row.host_bytes for row in case.best) else []
    rows = [
        [
            str(number), format_digits(row.step_s), *(f"{row.parts[name] / row.step_s:.0%}" for name in shown),
            f"{row.memory_bytes / GIB:.1f}", *(f"{row.host_bytes / GIB:.0f}" for _ in host), f"{row.chance_to_run:.0%}",
        ]
        for number, row in enumerate(case.best, 1)
    ]  # fmt: skip
    headings = ["#", "step\n(s)", *(BROKEN.get(name, name) for name in shown), "memory\n(GiB)", *host, "runs"]
    return Table(None, headings, rows)


def _nothing_fits(title: str, case: Case) -> Iterator[Part]:
    yield Line(f"{title}: none of {case.meshes} meshes fits.", wrap=True)
    for name, reason in case.losers:
        yield Line(f"The nearest, {name}: {reason}.", wrap=True)
    if not case.would_fit:
        yield "Other optimizers, LoRA, offloading and up to 16 times the devices do not help."
        return
    rows = [
        [
            each.change, each.best.mesh, each.best.tokens, f"{each.best.memory_bytes / GIB:.1f}",
            f"{each.best.host_bytes / GIB:.0f}" if each.best.host_bytes else NOTHING,
        ]
        for each in case.would_fit
    ]  # fmt: skip
    headings = ["with", "mesh", TOKENS, "memory\n(GiB)", "of a host\n(GiB)"]
    yield Table("Changes that would make it fit, one at a time", headings, rows, words=2)


def _sentences(case: Case) -> Iterator[str]:
    is_fastest = case.learning is not None or case.fitting == 1  # false with --mesh
    yield f"{case.meshes} meshes, of which {case.fitting} fit{is_fastest * f'; the fastest: {case.best[0].mesh}'}."
    parts = ", ".join(f"{name} {nbytes / GIB:.1f}" for name, nbytes in case.best[0].memory_parts.items())
    yield f"Its memory is {case.best[0].memory_bytes / GIB:.1f} GiB per device: {parts}."
    if len(case.tries) > 1:
        yield f"Try these meshes, whose uncertainties differ: {'; '.join(row.mesh for row in case.tries)}."
    if case.learning is not None:
        learning = case.learning
        yield (
            f"Measure these next: {'; '.join(learning.runs)}. With `ringlab calibrate --runs`, they narrow the 80 % "
            f"interval from ± {learning.within:.0%} to ± {learning.within_after:.0%}."
        )


def find_meshes(scenario: str | Path, options: SearchOptions, overrides: Sequence[str] = ()) -> SearchAnswer:
    """Return the fastest meshes of a scenario's training for each number of devices.

    Raise InputError if the scenario or an option is invalid.

    >>> answer = find_meshes("examples/llama2_70b.toml", SearchOptions(devices="64"))  # doctest: +SKIP
    """
    options.check()
    base = read_spread_training(scenario, overrides)
    options = options.with_plan(base)
    key, values = (None, [""]) if options.what_if is None else parse_sweep(options.what_if, "--what-if")
    cases, answers, notes, refused = list[Case](), list[FoundMeshes](), dict[str, None](), list[str]()
    varied = list[tuple[str, SpreadTraining, SearchOptions, list[int]]]()
    for value in values:
        try:
            spread, used = (base, options) if key is None else _vary(scenario, overrides, options, key, value)
            counts = [spread.cluster.world_size]
            if used.devices is not None:
                counts = parse_world_sizes(used.devices, "--devices", most=1 << 20)
            varied.append((value, spread, used, counts))
        except InputError as error:
            refused.append(f"{key} {value}: {error}.")
            if key is None:
                raise
    every = [number for *_, counts in varied for number in counts]
    for value, spread, used, counts in varied:
        try:
            priced = find_price(spread, base, every if KEYS.get(key or "", key) == KEYS["nodes"] else counts)
            for devices in counts:
                job = _make_job(spread, devices, used)
                belief, adapted = find_belief(job.gpu, job.framework, used.runs)
                meshes = search(job, belief, used.fill)
                fitting = len(meshes.order)
                if options.mesh is not None:
                    meshes, note = keep_mesh(meshes, options.mesh)
                    notes[note] = None
                cases.append(replace(_make_case(value, meshes, priced.dollars, used), fitting=fitting))
                answers.append(meshes)
                text = "" if is_published(job.gpu) else describe_unpublished([job.gpu])
                unpublished = f"{text[:1].upper()}{text[1:]}." * bool(text)
                about = (adapted, unpublished, *describe_network(spread.cluster), priced.note)
                notes |= dict.fromkeys(filter(None, about))
        except InputError as error:
            refused.append(f"{key} {value}: {error}.")
            if key is None:
                raise
    if not cases:
        raise InputError(refused[0].removesuffix("."))
    if answers[0].job.framework == FRAMEWORKS[0]:
        notes["No framework is set, so its factor is 1; published factors are within 10 % of 1."] = None
    if {*base.training.parallelism} - {"experts", "top_k"}:
        notes["All meshes are searched; `predict --devices` predicts the one in training.parallelism."] = None
    return SearchAnswer(
        title=base.title, file=str(base.path), model=base.training.model, precision=answers[0].job.precision,
        notes=tuple(notes), found=tuple(answers), cases=tuple(cases), key=key, refused=tuple(refused),
        tokens=options.tokens,
    )  # fmt: skip


def _vary(
    scenario: str | Path, overrides: Sequence[str], options: SearchOptions, key: str, value: str
) -> tuple[SpreadTraining, SearchOptions]:
    if key not in OPTIONS:
        name = KEYS.get(key, key)
        if "." not in name:
            raise InputError(f"--what-if: unknown key {quote(key)}; {suggest(key, (*KEYS, *OPTIONS))}, or section.key")
        return read_spread_training(scenario, (*overrides, f"{name}={value}")), options
    changed: Any = value
    if key in INTEGERS:
        least, most = INTEGERS[key]
        if not (value.isascii() and value.isdigit() and least <= int(value[:12]) <= most):
            raise InputError(f"--what-if {key}={quote(value)} must be an integer from {least} to {most}")
        changed = int(value)
    used = replace(options, **{key: changed})
    used.check()
    return read_spread_training(scenario, overrides), used


def _make_job(spread: SpreadTraining, devices: int, options: SearchOptions) -> MeshJob:
    training, host = spread.training, host_of_cluster(spread.cluster)
    if host.network is not None:
        raise InputError('search requires a GPU cluster: set cluster.preset and transport = "nccl"')
    if host.gpu is None:
        raise InputError(
            f"search requires a GPU from the catalog, but {spread.cluster.title} has none; run `ringlab list hardware` "
            "to see the GPUs. For other devices, use `ringlab predict --devices` and set training.compute = "
            "{rate = 500.0}"
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
        framework=training.framework,
        is_compiled=options.is_compiled,
        optimizer=options.optimizer or named_optimizer(training),
        offload=options.offload,
        lora=options.lora,
        frozen_bits=options.bits,
        experts=parallelism.experts,
        top_k=parallelism.top_k if parallelism.experts else 0,
        with_zero_bubble=options.with_zero_bubble,
    )


def _make_case(value: str, meshes: FoundMeshes, price: float | None, options: SearchOptions) -> Case:
    chosen, job = [int(number) for number in meshes.order[: options.top]], meshes.job
    losers = tuple(why_others_lose(meshes)) if options.why and len(meshes.order) > 1 else ()
    if not chosen:
        nearest = least_memory(meshes)
        losers = ((meshes.searched[nearest].name, why_too_large(meshes, nearest)),)
    learning = None
    if len(meshes.order) > 1:
        runs, before, after = choose_runs(meshes)
        names = tuple(meshes.searched[number].name for number in runs)
        learning = Learning(runs=names, within=before, within_after=after)
    remedies = () if chosen else what_would_fit(job, meshes.belief, options.fill)
    return Case(
        value=value, devices=job.gpus, machine=job.gpu, batch=job.batch, seq=job.seq, meshes=len(meshes.searched),
        fitting=len(meshes.order), best=_make_rows(meshes, chosen, price, options),
        tries=_make_rows(meshes, choose_tries(meshes), price, options), losers=losers, learning=learning,
        would_fit=tuple(
            RemedyRow(change=each.change, best=_make_rows(each.found, [int(each.found.order[0])], price, options)[0])
            for each in remedies
        ),
    )  # fmt: skip


def _make_rows(
    meshes: FoundMeshes, numbers: Sequence[int], price: float | None, options: SearchOptions
) -> tuple[MeshRow, ...]:
    factors = meshes.factors(numbers) if numbers else ()
    return tuple(
        _make_row(meshes, number, float(factor), price, options)
        for number, factor in zip(numbers, factors, strict=True)
    )


def _make_row(meshes: FoundMeshes, number: int, factor: float, price: float | None, options: SearchOptions) -> MeshRow:
    """Return a mesh's row. ``price`` is in dollars per device and hour. ``factor`` is the upper end of the 80 %
    interval divided by the prediction.
    """
    mesh, seconds, rate = meshes.searched[number], float(meshes.step_s[number]), float(meshes.tokens_per_s[number])
    hourly = None if price is None else price * meshes.job.gpus
    dollars = None if hourly is None else hourly / 3600 / rate * 1e9
    mfu = float(meshes.mfu[number])
    return MeshRow(
        mesh=mesh.name, tensor=mesh.tp, pipeline=mesh.pp, context=mesh.cp, expert=mesh.ep, data=mesh.dp,
        virtual=mesh.vp, schedule=mesh.schedule, strategy=mesh.sharding, micro_batch=mesh.micro_batch,
        microbatches=mesh.grad_accum, recompute=mesh.recompute, step_s=seconds,
        step_interval=(seconds / factor, seconds * factor), tokens_per_s=rate,
        parts={name: float(part[number]) for name, part in meshes.parts.items()},
        tokens_interval=(rate / factor, rate * factor), mfu=mfu,
        tflops_per_gpu=mfu * float(meshes.columns.peak[number]) / 1e12,
        memory_bytes=float(meshes.memory["total"][number]),
        memory_parts={name: float(meshes.memory[name][number]) for name in MEMORY_PARTS},
        host_bytes=float(meshes.host_bytes[number]), chance_to_run=float(meshes.chance[number]),
        dollars_per_billion_tokens=dollars,
        dollars_interval=None if dollars is None else (dollars / factor, dollars * factor),
        money=None if options.tokens is None else _make_bill(options, options.tokens / rate / 3600, factor, hourly),
    )  # fmt: skip


def _make_bill(options: SearchOptions, hours: float, factor: float, price: float | None) -> Money:
    low, high = hours / factor, hours * factor
    limit = min(options.hours, (options.budget or inf) / price if price is not None else inf)
    chance = 1.0 if limit == inf else NormalDist(log(hours), log(factor) / Z_80).cdf(log(limit))
    return Money(
        hours=hours, hours_interval=(low, high), dollars=None if price is None else hours * price,
        dollars_interval=None if price is None else (low * price, high * price), chance_within_limits=chance,
    )  # fmt: skip
