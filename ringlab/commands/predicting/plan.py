"""``ringlab plan``: find the instance types that train a model within a deadline and a budget."""

import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import date
from math import inf
from pathlib import Path
from typing import Annotated, Any

import viz
from collectives.checks import check_known
from collectives.errors import InputError
from collectives.quoting import quote
from collectives.records.model_profile import read_model_profile, shipped_model_profiles
from collectives.units import count
from planner.beliefs import describe_chance
from planner.clusters import host_of_cluster
from planner.gpus import describe_unpublished
from planner.jobs import Job
from planner.prediction import is_language
from planner.rates import GpuRates, measured_rate
from planner.renting.candidates import (
    Candidate,
    CandidateSteps,
    CostEstimate,
    Limits,
    Screening,
    list_candidates,
    screen,
)
from planner.renting.prices import OLD_AFTER_DAYS, InstanceType, is_old, read_prices
from planner.runs import find_own_runs
from planner.search import pareto_front
from ringlab.commands.predicting.predict_devices import WORDS
from ringlab.shared.answer import Answer, AnswerRecord
from ringlab.shared.failures import refusals_about
from ringlab.shared.models import find_job, named_optimizer
from ringlab.shared.options import JsonOpt, ScenarioArg, SetOpt, SizeOptions, drawing, option, with_groups
from ringlab.shared.output import check_outputs, deliver
from ringlab.shared.progress import Progress, TerminalProgress, computing, draw_to
from ringlab.shared.ranges import MOST_CASES
from ringlab.table import MOST_ROWS, Bounds, Part, Sentences, Table, format_interval
from scenarios.loader import PlannedTraining, read_planned_training, read_spread_training
from scenarios.sections import PlanSection

OLD, BEYOND = "†", "‡"  # mark an old price, and an interval that ends beyond a limit
GIB = 2**30


@dataclass(frozen=True)
class PlanOptions:
    """The options of ``ringlab plan``. Goals and limits override the scenario's ``[plan]``."""

    target_samples: float | None = option(
        None, help="Number of samples to train on. Default: the scenario's plan.target_samples or epochs.", metavar="N"
    )
    budget: float | None = option(None, help="Maximum cost in dollars. Default: plan.budget.", metavar="DOLLARS")
    deadline: str | None = option(
        None, help="Deadline in hours, or with a unit, such as 12h or '3 days'. Default: plan.deadline.", metavar="TIME"
    )
    spot: bool = option(False, help="Include spot instances with a known price. Default: plan.spot.")
    prices: Path | None = option(
        None, help="CSV file with the columns of the built-in price list, which is the default.", metavar="FILE.csv"
    )

    @property
    def overrides(self) -> tuple[str, ...]:
        """The options that override keys of the scenario's ``[plan]``, as strings for ``--set``."""
        keys = {name: value for name, value in vars(self).items() if value is not None and value is not False}
        keys.pop("prices", None)
        return tuple(
            f"plan.{key}={json.dumps(value) if isinstance(value, str | bool) else value}" for key, value in keys.items()
        )


@with_groups
def command(
    scenario: ScenarioArg,
    *,
    options: PlanOptions,
    size: SizeOptions,
    plot: Annotated[Path | None, drawing("a plot", "Plot time against cost, as .png, .svg or .pdf.")] = None,
    json_to: JsonOpt = None,
    set_keys: SetOpt = None,
) -> None:
    """Find the cheapest instance types for a training run within a deadline and a budget."""
    check_outputs(json_to, plot)
    answer = plan(scenario, *(set_keys or ()), *size.overrides, **vars(options), progress=TerminalProgress())
    deliver(answer, json_to, draw_to(answer, plot, json_to))


@dataclass(frozen=True, kw_only=True)
class PlanRow(AnswerRecord):
    """A candidate within the limits: hours and dollars of the whole training, with 80 % intervals."""

    rank: int
    label: str
    provider: str
    instance: str
    region: str
    gpu: str
    gpus: int
    nodes: int
    market: str
    price_per_hour: float
    price_is_old: bool
    samples_per_s: float
    efficiency: float
    bottleneck: str
    mesh: str
    memory_bytes: float | None  # on the GPU that uses the most; only for language models
    chance_to_run: float | None
    hours: float
    hours_80: Bounds
    cost: float
    cost_80: Bounds
    high_end_within_limits: bool
    front: bool

    def cells(self, limits: Limits) -> list[str]:
        return [
            f"{self.rank}{'*' * self.front}",
            self.label,
            *([self.mesh] if self.mesh else []),
            self.bottleneck,
            format_interval(self.hours, self.hours_80) + BEYOND * (self.hours_80[1] > limits.deadline),
            format_interval(self.cost, self.cost_80) + BEYOND * (self.cost_80[1] > limits.budget),
            f"{self.price_per_hour:.2f}{OLD * self.price_is_old}",
        ]


@dataclass(frozen=True, kw_only=True)
class MemoryRow(AnswerRecord):
    """A GPU type and count with too little memory for the training. Bytes are per GPU."""

    gpu: str
    gpus: int
    needed_bytes: float
    memory_bytes: float

    def cells(self) -> list[str]:
        return [f"{self.gpus} x {self.gpu}", f"{self.needed_bytes / GIB:,.1f}", f"{self.memory_bytes / GIB:,.0f}"]


@dataclass(frozen=True, repr=False, kw_only=True)
class PlanAnswer(Answer):
    """The result of ``ringlab plan``: the candidates within the deadline and budget, cheapest first."""

    kind = "plan"

    title: str
    file: str
    model: str
    target_samples: float
    target_tokens: float | None  # only for a transformer
    deadline_hours: float | None
    budget: float | None
    prices: str
    prices_newest: str
    candidates: tuple[PlanRow, ...]
    beyond_limits: int  # candidates that are late or over budget
    too_little_memory: tuple[MemoryRow, ...]
    notes: tuple[str, ...]
    advice: str

    @property
    def target(self) -> str:
        """The length of the training in tokens, or in samples for models other than transformers."""
        tokens = self.target_tokens
        return f"{self.target_samples:,.0f} samples" if tokens is None else f"{tokens:,.0f} tokens"

    @property
    def limits(self) -> Limits:
        """The deadline in hours and the budget in dollars. A missing limit is infinite."""
        return Limits(self.deadline_hours or inf, self.budget or inf)

    def draw(self, path: Path | str) -> None:
        """Plot time against cost as .png, .svg or .pdf. Raise InputError for any other suffix."""
        dots = [
            viz.Priced(row.label, row.gpu, (fewest, row.hours, most), (least, row.cost, highest), row.front)
            for row in self.candidates
            for (fewest, most), (least, highest) in [(row.hours_80, row.cost_80)]
        ]
        subtitle = f"{self.target}; prices of {self.prices_newest} and before; lines: 80 % intervals"
        viz.write_figure(viz.money_figure(f"{self.title}: time and cost", subtitle, dots, self.limits), path)

    def show(self) -> Iterator[Part]:
        shown = [row for number, row in enumerate(self.candidates) if number < MOST_ROWS or row.front]
        notes, marks = [*self.notes], list[str]()
        if shown:
            yield self._table(shown)
            notes, marks = [*self._legend(shown), *notes], [self._marks(shown)]
        small = dict[str, MemoryRow]()  # for each GPU type, the number of GPUs that is closest to fitting
        for each in sorted(self.too_little_memory, key=lambda each: each.needed_bytes / each.memory_bytes):
            small.setdefault(each.gpu, each)
        if small and not (self.candidates or self.beyond_limits):
            headings = ["candidate", "needed\n(GiB a GPU)", "available\n(GiB a GPU)"]
            yield Table("Too little memory", headings, [each.cells() for each in small.values()])
        elif small:
            notes.insert(0, f"too little memory: {', '.join(each.cells()[0] for each in small.values())}")
        yield Sentences([*notes, *marks, self.advice])

    def _table(self, shown: Sequence[PlanRow]) -> Table:
        meshes = ["mesh"] if any(row.mesh for row in shown) else []
        headings = ["", "candidate", *meshes, "bottleneck", "hours (80 %)", "$ (80 %)", "$/h"]
        title = f"{self.title}: {self.target}"
        return Table(title, headings, [row.cells(self.limits) for row in shown], words=3 + len(meshes))

    def _legend(self, shown: Sequence[PlanRow]) -> Iterator[str]:
        if more := len(self.candidates) - len(shown):
            yield f"{more} more expensive candidates are not shown; --json writes all"
        names = dict.fromkeys(row.bottleneck.split()[0] for row in shown)
        words = [f"{name}: {WORDS[name]}" for name in names if name in WORDS and name != "compute"]
        yield "; ".join(["bottleneck: the largest part of a step except compute, and its share", *words])

    def _marks(self, shown: Sequence[PlanRow]) -> str:
        marks = "*: no other candidate is both faster and cheaper (Pareto front)"
        if not all(row.high_end_within_limits for row in shown):
            marks += f"; {BEYOND}: the high end is beyond the deadline or the budget"
        if any(row.price_is_old for row in shown):
            marks += f"; {OLD}: the price is older than {OLD_AFTER_DAYS} days or has no date"
        return marks


def plan(
    scenario: str | Path,
    *overrides: str,
    progress: Progress | None = None,
    today: date | None = None,
    **fields: Any,
) -> PlanAnswer:
    """Find the instance types that train a scenario's model within the deadline and the budget.

    ``fields`` are the fields of ``PlanOptions``, such as ``target_samples``, ``budget`` in dollars, and ``deadline``,
    which is in hours unless it has a unit, as in "3 days". They override the scenario's ``[plan]``. ``spot`` adds spot
    instances. ``prices`` is a file in the format of ``planner/renting/prices.csv``. ``today`` determines which prices
    are old. Raises InputError if the scenario, an option or the price list is invalid, or no candidate is supported.

    >>> found = plan("quickstart", "training.model='resnet50'", "plan.known_rates={'V100' = 400.0}", target_samples=1e8)
    >>> found.candidates[0].cost <= found.candidates[1].cost
    True
    """
    options, when = PlanOptions(**fields), date.today() if today is None else today
    if not isinstance(when, date):
        raise InputError(f"today must be a datetime.date, not {quote(when)}")
    planned = read_planned_training(str(scenario), (*overrides, *options.overrides))
    wanted = planned.plan
    with refusals_about(f"{planned.path}: training"):
        job = find_job(planned.training, planned.path.parent)
    context = None if job.model.shape is None else job.model.shape.context
    samples = _samples(planned, wanted, context)
    instances = _offered(read_prices(options.prices), wanted, planned.path)
    candidates = _candidates(instances, wanted)
    with refusals_about(str(planned.path)):
        steps = _step_source(planned, job, {estimate.gpu for estimate in instances}, overrides)
    with computing(progress, f"predicting {len(candidates)} candidates") as tick:
        screened = screen(candidates, steps, samples, lambda done: tick(0, done, len(candidates), "candidates"))
    if not (screened.estimates or screened.too_small):  # report the reason for the largest number of GPUs
        named = screened.unsupported
        reason = max(named, key=lambda reason: max(candidate.gpus for candidate in named[reason]))
        raise InputError(f"{planned.path}: training: {reason}")

    limits = Limits(wanted.deadline or inf, wanted.budget or inf)
    ranked = sorted(screened.estimates, key=lambda each: (each.dollars, each.hours, each.candidate.label))
    within = [estimate for estimate in ranked if limits.allow(estimate.hours, estimate.dollars)]
    front = {*pareto_front([(estimate.hours, estimate.dollars) for estimate in within])}
    source = "built-in list" if options.prices is None else str(options.prices)
    return PlanAnswer(
        title=planned.title, file=str(planned.path), model=job.model.model, target_samples=samples,
        target_tokens=None if context is None else samples * context, deadline_hours=wanted.deadline,
        budget=wanted.budget, prices=source, prices_newest=max(estimate.dated for estimate in instances).isoformat(),
        candidates=tuple(
            _row(place, estimate, place in front, limits, when, is_searched=steps.is_searched)
            for place, estimate in enumerate(within)
        ),
        beyond_limits=len(ranked) - len(within),
        too_little_memory=tuple(
            MemoryRow(gpu=gpu, gpus=gpus, needed_bytes=error.needed, memory_bytes=error.available)
            for (gpu, gpus), error in screened.too_small.items()
        ),
        notes=(*_notes(screened, within, steps), *_price_notes(planned, instances, source, when)),
        advice=_advise(within, ranked, limits, screened),
    )  # fmt: skip


def _notes(screened: Screening, within: Sequence[CostEstimate], steps: CandidateSteps) -> Iterator[str]:
    for reason, candidates in screened.unsupported.items():
        yield f"not supported: {count(len(candidates), 'candidate')} such as {candidates[0].label}: {reason}"
    if len(within) < len(screened.estimates):
        beyond = len(screened.estimates) - len(within)
        yield f"late or over budget: {beyond} of {len(screened.estimates)} candidates"
    yield from steps.notes
    gpus = dict.fromkeys(row.candidate.instance.gpu for row in within)
    if unseen := [gpu for gpu in gpus if not steps.is_published(gpu)]:
        yield describe_unpublished(unseen)


def _samples(planned: PlannedTraining, wanted: PlanSection, context: int | None) -> float:
    epoch = planned.training.epoch
    with refusals_about(f"{planned.path}: plan"):
        samples = wanted.find_samples(context)
    if samples is None and epoch is None:
        raise InputError(
            f"{planned.path}: plan.target_samples is missing; set it, pass --target-samples or --target-tokens, or set "
            "training.samples_per_epoch and epochs"
        )
    return samples or float((epoch or 0) * planned.training.epochs)


def _offered(instances: Sequence[InstanceType], wanted: PlanSection, path: Path) -> list[InstanceType]:
    known = sorted({instance.provider for instance in instances})
    with refusals_about(f"{path}: plan.providers"):
        wanted_providers = [check_known("provider", name, known) for name in wanted.providers] or known
    return [instance for instance in instances if instance.provider in wanted_providers]


def _candidates(instances: Iterable[InstanceType], wanted: PlanSection) -> list[Candidate]:
    candidates = [*list_candidates(instances, wanted.most_nodes, wanted.spot)]
    if not candidates:
        raise InputError("the price list has only spot prices for these providers; pass --spot")
    if len(candidates) > MOST_CASES:
        raise InputError(
            f"{len(candidates):,} candidates are too many; the maximum is {MOST_CASES:,}. Shorten the price list or "
            "plan.providers, or reduce plan.most_nodes"
        )
    return candidates


def _step_source(planned: PlannedTraining, job: Job, gpus: Collection[str], overrides: Sequence[str]) -> CandidateSteps:
    compute, files = planned.training.compute, [*planned.plan.profiles]
    known = dict(planned.plan.known_rates)
    if compute is not None and compute.phases is not None:
        compute = compute.model_copy(update={"rate": job.batch / compute.phases.total})
    if compute is not None and compute.rate is not None:
        known[compute.gpu or _gpu_of_cluster(planned.path, overrides, compute.rate)] = compute.rate
    if compute is not None and compute.profile is not None and compute.profile not in shipped_model_profiles():
        files.append(compute.profile)
    for place in (planned.path.parent / name for name in files):
        gpu, rate = measured_rate(read_model_profile(place), str(place))
        known[gpu] = rate
    language = replace(job, optimizer=named_optimizer(planned.training))
    if known or compute is not None or not is_language(language):
        return CandidateSteps(job, GpuRates(job, known, gpus))
    own_runs = {gpu: runs for gpu in sorted(gpus) if (runs := find_own_runs(gpu, job.framework)) is not None}
    keys = ("parallelism", "gradient_sync", "accumulate", "sync_every")
    is_searched = planned.training.model_fields_set.isdisjoint(keys)
    return CandidateSteps(language, own=own_runs, is_searched=is_searched)


def _gpu_of_cluster(path: Path, overrides: Sequence[str], rate: float) -> str:
    with suppress(InputError):  # a plan needs no valid cluster
        if isinstance(gpu := host_of_cluster(read_spread_training(path, overrides).cluster).gpu, str):
            return gpu
    raise InputError(
        f'training.compute: plan needs the GPU of this rate; set compute = {{rate = {rate:.4g}, gpu = "H100 SXM"}}'
    )


def _price_notes(
    planned: PlannedTraining, instances: Sequence[InstanceType], source: str, today: date
) -> Iterator[str]:
    old = sum(is_old(instance, today) for instance in instances)
    newest = max(instance.dated for instance in instances).isoformat()
    more = f"; {old} of {len(instances)} are older than {OLD_AFTER_DAYS} days or have no date: check them first"
    yield f"prices: {source}, the newest of {newest}{more if old else ''}"
    if planned.training.price_per_hour is not None:
        yield (
            f"training.price_per_hour ({planned.training.price_per_hour:g}) is not used, because a price belongs to an "
            "instance type; pass your own prices with --prices FILE.csv"
        )


def _advise(within: Sequence[CostEstimate], ranked: Sequence[CostEstimate], limits: Limits, screened: Screening) -> str:
    if not ranked:
        closest = min(screened.too_small.values(), key=lambda error: error.needed / error.available)
        return f"No candidate has enough memory. The closest: {closest}."
    if within:
        first, which = within[0], "Cheapest" if limits == Limits() else "Cheapest on time and on budget"
        late, dear = first.hours_80[1] > limits.deadline, first.dollars_80[1] > limits.budget
        beyond = " and ".join(["late"] * late + ["over budget"] * dear)
        more = f"; the high end is {beyond}" if beyond else ""
        risk = describe_chance(f"On {first.candidate.label}", first.step.memory["total"], first.step.chance_to_run)
        return " ".join([f"{which}: {_describe(first)}{more}.", *filter(None, [risk])])
    limit_texts = [f"within {limits.deadline:.3g} h"] * (limits.deadline < inf)
    limit_texts += [f"for ${limits.budget:.4g}"] * (limits.budget < inf)
    fastest = min(ranked, key=lambda estimate: estimate.hours)
    return (
        f"No candidate finishes {' and '.join(limit_texts)}. Fastest: {_describe(fastest)}. "
        f"Cheapest: {_describe(ranked[0])}."
    )


def _describe(estimate: CostEstimate) -> str:
    hours = format_interval(estimate.hours, estimate.hours_80)
    dollars = format_interval(estimate.dollars, estimate.dollars_80)
    return f"{estimate.candidate.label} ({estimate.candidate.order}): {hours} hours, ${dollars}"


def _row(
    place: int, estimate: CostEstimate, is_front: bool, limits: Limits, today: date, *, is_searched: bool
) -> PlanRow:
    candidate, instance, step = estimate.candidate, estimate.candidate.instance, estimate.step
    part, share = step.parts.bottleneck
    return PlanRow(
        rank=place + 1, label=candidate.label, provider=instance.provider, instance=instance.instance,
        region=instance.region, gpu=instance.gpu, gpus=candidate.gpus, nodes=candidate.nodes, market=candidate.market,
        price_per_hour=candidate.price, price_is_old=is_old(instance, today), samples_per_s=step.rate,
        efficiency=step.efficiency, bottleneck=part if part == "compute" else f"{part} {share:.0%}",
        mesh=step.mesh if is_searched else "", memory_bytes=step.memory["total"], chance_to_run=step.chance_to_run,
        hours=estimate.hours, hours_80=estimate.hours_80, cost=estimate.dollars, cost_80=estimate.dollars_80,
        high_end_within_limits=limits.allow(estimate.hours_80[1], estimate.dollars_80[1]), front=is_front,
    )  # fmt: skip
