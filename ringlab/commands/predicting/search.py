"""``ringlab search``: find the fastest device meshes for a language model, with their memory and cost."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from math import inf
from pathlib import Path
from typing import Annotated

import viz
from collectives.checks import check_known
from collectives.errors import InputError
from collectives.quoting import quote, suggest
from collectives.records.model_profile import EXAMPLE, TRANSFORMERS, is_transformer, parse_transformer
from collectives.training.parallelism import FRAMEWORKS, Parallelism
from planner.clusters import check_devices, describe_network, host_of_cluster
from planner.gpus import PRECISIONS
from planner.jobs import BITS, OPTIMIZERS, SearchedMesh
from planner.memory import FILL
from planner.prediction import KINDS, SOURCE, Training
from planner.search import FoundMeshes, keep_mesh, search
from planner.step import PARTS
from ringlab.commands.predicting.mesh_rows import PRICE, Case, Row, format_value, make_case
from ringlab.commands.predicting.predict_sweep import KEYS, full_key, parse_sweep
from ringlab.shared.answer import NOT_IN_JSON, Answer
from ringlab.shared.failures import refusals_about
from ringlab.shared.machines import find_price
from ringlab.shared.models import find_job, find_language_model
from ringlab.shared.options import JsonOpt, ScenarioArg, SetOpt, SizeOptions, drawing, option, with_groups
from ringlab.shared.output import check_outputs, deliver
from ringlab.shared.progress import TerminalProgress, computing, draw_to
from ringlab.shared.ranges import parse_world_sizes
from ringlab.table import NOTHING, Format, Line, Part, Sentences, Table, format_digits, format_whole, time_unit
from scenarios.loader import SpreadTraining, read_spread_training

GIB = 2**30
TOKENS, BILLION = "tokens/s (80 %)", "$ a billion\ntokens"
KEPT = ("experts", "top_k", "bucket_mb", "overlap", "half_weights", "gradient_bytes")  # apply to every mesh
NONE_FITS = ["none fits", NOTHING, NOTHING, NOTHING]


@dataclass(frozen=True)
class SearchOptions:
    """The options of ``ringlab search``: changes to the scenario's training, meshes to list, and files to write."""

    batch: int | None = option(
        None,
        help="Global batch size in sequences. Default: global_batch_size, or batch_size times the devices.",
        min=1,
        metavar="N",
    )
    precision: str | None = option(
        None, help="Precision: bf16, fp16, fp8, mxfp8, nvfp4, tf32 or float32. Default: the scenario's.", metavar="NAME"
    )

    is_compiled: bool = option(False, "--compile", help="Assume that layers run under torch.compile.")
    optimizer: str | None = option(
        None, help="Optimizer: adamw, adamw8bit or sgd. Default: the scenario's, or adamw.", metavar="NAME"
    )
    lora: int = option(
        0, help="LoRA rank: train adapters with frozen weights. 0: train all weights.", min=0, max=4096, metavar="RANK"
    )
    bits: str = option("16", help="With --lora: bits per frozen weight. 4: QLoRA.", metavar="16|8|4")
    with_zero_bubble: bool = option(False, "--zero-bubble", help="Include zero-bubble pipeline schedules.")
    top: int = option(10, help="Number of meshes to list.", min=1, max=1000, metavar="N")
    why: bool = option(False, help="Explain why other kinds of meshes are slower.")
    plot: Annotated[Path | None, drawing("a plot", "Plot throughput against memory, as .png, .svg or .pdf.")] = None
    devices: str | None = option(
        None, help="Numbers of devices, such as 8,64,512. Default: the whole cluster.", metavar="LIST"
    )
    fill: float = option(FILL, help="Maximum fraction of device memory to use.", min=0.1, max=1.0, metavar="SHARE")
    mesh: str | None = option(
        None, help="Mesh to compare with the fastest mesh, by its name in the list.", metavar="NAME"
    )
    what_if: str | None = option(
        None,
        help="Repeat the search for each value of a key, such as preset=dgx-h100,dgx-b200. "
        "Other keys: sequence, precision, nodes, ...",
        metavar="KEY=VALUES",
    )

    def check(self) -> None:
        """Raise InputError if an option has an unknown value, or if weights are quantized without LoRA."""
        for name, value, known in (
            ("precision", self.precision, PRECISIONS), ("optimizer", self.optimizer, OPTIMIZERS),
            ("bits", self.bits, BITS),
        ):  # fmt: skip
            if value is not None:
                check_known(name, value, known)
        if self.bits != "16" and not self.lora:
            raise InputError(f"--bits {self.bits} requires --lora RANK, because only frozen weights can be quantized")


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
    check_outputs(json_to, options.plot)
    with computing(TerminalProgress(), "searching meshes"):
        answer = find_meshes(scenario, options, (*(set_keys or ()), *size.overrides))
    deliver(answer, json_to, draw_to(answer, options.plot, json_to))


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
        keys = ["devices"] if self.key is None else [self.key, "devices"]
        named = [([case.value, str(case.devices)][-len(keys) :], case) for case in self.cases]
        if len(self.cases) > 1:
            headings = [*keys, "fastest that fits", TOKENS, "MFU", BILLION]
            rows = [
                [*name, *([*_rates(case.best[0]), format_value(case.best[0], PRICE)] if case.best else NONE_FITS)]
                for name, case in named
            ]
            yield Table(f"{self.model}: the fastest of each", headings, rows, words=len(keys) + 1)
        for case in self.cases if self.key is None else ():
            yield from self._case(case)
        bills = [(name, case, case.best[0]["money"]) for name, case in named if self.tokens and case.best]
        if bills:
            unit, form = time_unit(3600 * money["hours"] for *_, money in bills)
            rows = [[*name, *_bill(money, form)] for name, _, money in bills]
            yield Table(f"{self.tokens:.3g} tokens", [*keys, f"{unit} (80 %)", "$ (80 %)"], rows)
            _, case, money = min(bills, key=lambda bill: (bill[2].get("dollars", inf), bill[2]["hours"]))
            value, (time, dollars) = f"{self.key} {case.value}, " if self.key else "", _bill(money, form)
            which, cost = ("Fastest", "") if dollars == NOTHING else ("Cheapest", f" for ${dollars}")
            which += " with a price" * (len(bills) > sum("dollars" in bill for *_, bill in bills) > 0)
            best = f"{which} for {self.tokens:.3g} tokens: {value}{case.devices} x {case.machine}, "
            yield Sentences([f"{best}{case.best[0]['mesh']}. It takes {time} {unit}{cost}."])
        if self.refused or self.notes:
            yield Sentences((*self.refused, *self.notes))

    def _case(self, case: Case) -> Iterator[Part]:
        title = f"{self.model} on {case.devices} x {case.machine}, {case.batch} sequences of {case.seq} tokens"
        if not case.best:
            yield from _nothing_fits(title, case)
            return
        rows = [
            [str(number), *_rates(row), format_digits(row["tflops_per_gpu"]), format_value(row, PRICE)]
            for number, row in enumerate(case.best, 1)
        ]
        yield Table(title, ["#", "mesh", TOKENS, "MFU", "TFLOP/s\na GPU", BILLION], rows, words=2)
        yield _step_table(case)
        if case.losers:
            yield Table("Why others are slower", ["kind", "its best mesh"], [[*each] for each in case.losers], words=2)
        yield Sentences([*_sentences(case)])

    def draw(self, path: Path) -> None:
        """Plot throughput against memory, with the Pareto front, as .png, .svg or .pdf."""
        jobs = [
            viz.MeshDots(
                title=f"{case.value}: " * bool(case.value)
                + f"{case.devices} x {case.machine}, {case.batch} sequences of {case.seq}",
                rates=each.tokens_per_s.tolist(),
                memory_gib=(each.memory["total"] / GIB).tolist(),
                strategies=[
                    " and ".join(["tensor"] * (mesh.tp > 1) + ["pipeline"] * (mesh.pp > 1)) or mesh.sharding
                    for mesh in each.searched
                ],
                names=[mesh.name for mesh in each.searched],
                front=each.front,
                limit_gib=float(each.columns.memory_bytes[0]) / GIB,
            )
            for case, each in zip(self.cases, self.found, strict=True)
        ]
        viz.write_figure(viz.meshes_figure(self.model, jobs), path)


def _rates(row: Row) -> list[str]:
    return [row["mesh"], format_value(row, "tokens_per_s", format_whole), f"{row['mfu']:.0%}"]


def _bill(money: Row, form: Format) -> list[str]:
    return [format_value(money, "hours", lambda hours: form(3600 * hours)), format_value(money, "dollars")]


def _step_table(case: Case) -> Table:
    best = case.best
    shown = [name for name in PARTS if any(abs(row["parts"][name]) > 0.005 * row["step_s"] for row in best)]
    rows = [
        [
            str(number), format_digits(row["step_s"]),
            *(f"{row['parts'][name] / row['step_s']:.0%}" for name in shown), f"{row['memory_bytes'] / GIB:.1f}",
            f"{row['chance_to_run']:.0%}",
        ]
        for number, row in enumerate(best, 1)
    ]  # fmt: skip
    headings = ["#", "step\n(s)", *shown, "memory\n(GiB)", "runs"]
    return Table(None, headings, rows)


def _nothing_fits(title: str, case: Case) -> Iterator[Part]:
    yield Line(f"{title}: none of the {case.meshes} meshes fits into device memory.", wrap=True)
    for name, reason in case.losers:
        yield Line(f"The mesh with the lowest memory usage, {name}, {reason}.", wrap=True)
    if not case.would_fit:
        yield "Other optimizers, LoRA and up to 16 times the devices do not help."
        return
    fitting = ((remedy["change"], remedy["best"]) for remedy in case.would_fit)
    rows = [[change, *_rates(row)[:2], f"{row['memory_bytes'] / GIB:.1f}"] for change, row in fitting]
    headings = ["with", "mesh", TOKENS, "memory\n(GiB)"]
    yield Table("Changes that would make it fit, one at a time", headings, rows, words=2)


def _sentences(case: Case) -> Iterator[str]:
    best, learning = case.best[0], case.learning
    fastest = f"; the fastest: {best['mesh']}" * (learning is not None or case.fitting == 1)  # not with --mesh
    yield f"{case.meshes} meshes, of which {case.fitting} fit{fastest}."
    parts = ", ".join(f"{name} {nbytes / GIB:.1f}" for name, nbytes in best["memory_parts"].items())
    yield f"Its memory is {best['memory_bytes'] / GIB:.1f} GiB per device: {parts}."
    if learning is not None:
        yield (
            f"Measure these next: {'; '.join(learning['runs'])}. With `ringlab calibrate --runs`, they narrow the 80 % "
            f"interval from ± {learning['within']:.0%} to ± {learning['within_after']:.0%}."
        )


def find_meshes(scenario: str | Path, options: SearchOptions, overrides: Sequence[str] = ()) -> SearchAnswer:
    """Return the fastest meshes of a scenario's training for each number of devices.

    Raise InputError if the scenario or an option is invalid.

    >>> answer = find_meshes("examples/llama2_70b.toml", SearchOptions(devices="64"))  # doctest: +SKIP
    """
    options.check()
    base = read_spread_training(scenario, overrides)
    key, values = (None, [""]) if options.what_if is None else parse_sweep(options.what_if, "--what-if")
    name = full_key("search", key or "")
    if key is not None and "." not in name:
        raise InputError(
            f"--what-if: unknown key {quote(key)}; {suggest(key, KEYS)}, or section.key. To vary an option such as "
            "--lora, run search once per value"
        )
    cases, found, notes, refused = list[Case](), list[FoundMeshes](), dict[str, None](), list[str]()
    varied = list[tuple[str, SpreadTraining, list[int]]]()
    counts = [] if options.devices is None else parse_world_sizes(options.devices, "--devices", most=1 << 20)
    for value in values:
        with _refusing(key, value, refused):
            spread = base if key is None else read_spread_training(scenario, (*overrides, f"{name}={value}"))
            varied.append((value, spread, counts or [spread.cluster.world_size]))
    every = [number for *_, counts in varied for number in counts]
    model = base.training.model
    context = parse_transformer(model)[1].context if is_transformer(model) else 1
    samples = base.plan.find_samples(context)
    tokens = None if samples is None else samples * context
    for value, spread, counts in varied:
        with _refusing(key, value, refused):
            price = find_price(spread, base, every if KEYS.get(key or "", key) == KEYS["nodes"] else counts)
            for devices in counts:
                training = _make_training(spread, devices, options)
                meshes = search(training, options.fill, *_own_mesh(spread, training))
                fitting, compared = len(meshes.order), None
                if options.mesh is not None:
                    meshes, compared = keep_mesh(meshes, options.mesh)
                money = price, tokens
                shown = make_case(value, meshes, money, top=options.top, with_reasons=options.why, fill=options.fill)
                cases.append(replace(shown, fitting=fitting))
                found.append(meshes)
                text = training.source.removeprefix(SOURCE).lstrip(",; ")
                source = f"{text[:1].upper()}{text[1:]}." * bool(text)
                about = (compared, source, *describe_network(spread.cluster), price.note)
                notes |= dict.fromkeys(filter(None, about))
    if not cases:
        raise InputError(refused[0].removesuffix("."))
    if found[0].training.job.framework == FRAMEWORKS[0]:
        notes["No framework is set, so its factor is 1; published factors are within 10 % of 1."] = None
    if {*base.training.parallelism} - {*KEPT} or base.training.accumulate > 1:
        notes["All meshes and microbatches are searched; `predict --devices` predicts those of [training]."] = None
    return SearchAnswer(
        title=base.title, file=str(base.path), model=base.training.model, precision=found[0].training.job.precision,
        notes=tuple(notes), found=tuple(found), cases=tuple(cases), key=key, refused=tuple(refused), tokens=tokens,
    )  # fmt: skip


@contextmanager
def _refusing(key: str | None, value: str, refused: list[str]) -> Iterator[None]:
    """Add the message of an InputError in the block to ``refused``. If ``key`` is None, let the error through."""
    try:
        yield
    except InputError as error:
        if key is None:
            raise
        refused.append(f"{key} {value}: {error}.")


def _make_training(spread: SpreadTraining, devices: int, options: SearchOptions) -> Training:
    training, host = spread.training, host_of_cluster(spread.cluster, spread.algorithm)
    if host.network is not None:
        raise InputError('search requires a GPU cluster: set cluster.preset and transport = "nccl"')
    if host.gpu is None:
        raise InputError(
            f"search requires a GPU from the catalog, but {spread.cluster.title} has none; run `ringlab list hardware` "
            "to see the GPUs. For other devices, use `ringlab predict --devices` and set training.compute = "
            "{rate = 500.0}"
        )
    if not is_transformer(training.model) or parse_transformer(training.model)[0] not in KINDS:
        names = ", ".join(name for name, dimensions in TRANSFORMERS.items() if dimensions.startswith(KINDS))
        raise InputError(
            f"model {quote(training.model)} is not a GPT or Llama with known dimensions, from which search computes "
            f"each step; use {EXAMPLE}, or one of {names}. For other models, use `ringlab predict --devices`"
        )
    keys = {"compute": training.compute, "parameters": training.parameters, "shard": spread.parallelism.shard}
    keys["sync_every"] = spread.parallelism.sync_every > 1
    for key, value in keys.items():
        if value:
            raise InputError(
                f"search does not support {key}, because it varies the mesh and computes each step from the model's "
                f"dimensions; remove {key}, or predict one mesh with `ringlab predict --devices`"
            )
    check_devices(spread.cluster, devices)
    with refusals_about(f"{spread.path}: training"):
        job = find_job(training, spread.folder, is_traced=False)
        job = replace(job, precision=options.precision or job.precision)
        if options.batch is not None:
            job = replace(job, batch=options.batch, is_global=True)
        language = find_language_model(training, job, host)
    assert language is not None
    job = replace(
        language.job,
        parallelism=Parallelism(data=devices, **{name: getattr(spread.parallelism, name) for name in KEPT}),
        optimizer=options.optimizer or language.job.optimizer,
        compiled=options.is_compiled,
        lora=options.lora,
        frozen_bits=options.bits,
        with_zero_bubble=options.with_zero_bubble,
    )
    return replace(language, job=job)


def _own_mesh(spread: SpreadTraining, training: Training) -> list[SearchedMesh]:
    """Return the mesh of the scenario, or no mesh if it does not fit the number of devices or the global batch."""
    with suppress(InputError):
        own = replace(training, job=replace(training.job, parallelism=spread.parallelism))
        own = own.on(training.job.parallelism.devices)
        return [own.mesh] if own.job.global_batch == training.job.global_batch else []
    return []
