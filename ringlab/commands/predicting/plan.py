"""``ringlab plan``: which machines to rent for a training, by time and money, and how sure that is."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from datetime import date
from math import inf
from pathlib import Path
from typing import Annotated, Any

from typer import Option

import viz
from collectives.checks import check_number
from collectives.errors import InputError
from collectives.quoting import quote, suggest
from collectives.records.model_profile import read_model_profile, shipped_model_profiles
from ringlab.commands.predicting.devices_answer import WORDS
from ringlab.shared.answer import Answer, AnswerRecord
from ringlab.shared.failures import refusals_about
from ringlab.shared.models import find_job, named_optimizer
from ringlab.shared.options import ExplainOpt, JsonOpt, ScenarioArg, SetOpt, drawing, with_groups
from ringlab.shared.output import check_outputs, deliver
from ringlab.shared.progress import Progress, TerminalProgress, computing, draw_to, keeping
from ringlab.shared.ranges import MOST_CASES
from ringlab.table import MOST_ROWS, Part, Sentences, Table, format_digits
from scenarios.forms import PlanForm, parse_hours
from scenarios.loader import PlannedTraining, read_planned_training
from simcomm.mesh.compute import measured_rate
from simcomm.mesh.job import TrainingJob
from simcomm.mesh.language import is_expressible, is_language
from simcomm.mesh_search.runs import find_own_runs
from simcomm.renting.language_models import LanguagePredicting
from simcomm.renting.plan import MINUTES, SHARE, PlanLimits, RentalPlan, advise, half_width, make_plan
from simcomm.renting.predicting import AnyPredicting, AnyQuestion, Predicting, fitting_choices, predict_all
from simcomm.renting.quotes import BreakEven, Choice, Interruptions, Quote, Rate, list_choices, make_quote
from simcomm.renting.rentals import OLD_AFTER_DAYS, Rental, is_old, newest_date, read_rentals
from simcomm.scaling.gpu_rates import GpuRates

OLD = "†"  # behind a price


@dataclass(frozen=True)
class PlanOptions:
    """What is asked of a plan; each goes before what the scenario's ``[plan]`` says."""

    target_samples: Annotated[
        float | None, Option(metavar="N", help="Total number of samples or tokens to train on. Default: one epoch.")
    ] = None
    budget: Annotated[float | None, Option(metavar="DOLLARS", help="Maximum cost in dollars.")] = None
    deadline: Annotated[
        str | None, Option(metavar="TIME", help="Deadline, such as 12h or '3 days'. A plain number is in hours.")
    ] = None
    spot: Annotated[bool, Option("--spot", help="Include spot instances with a known price.")] = False
    prices: Annotated[
        Path | None,
        Option(metavar="FILE.csv", help="Price list with the columns of prices.csv. Default: the built-in snapshot."),
    ] = None
    kept: Annotated[
        Path | None,
        Option("--keep", metavar="FILE", help="Cache predicted rates in FILE."),
    ] = None

    def applied(self, form: PlanForm) -> PlanForm:
        """Return what a scenario says of its plan, changed to what is asked here. Raise InputError."""
        for name, value in (("--target-samples", self.target_samples), ("--budget", self.budget)):
            if value is not None:
                check_number(name, value, above=0)
        with refusals_about("--deadline"):
            hours = None if self.deadline is None else parse_hours(self.deadline)
        asked = {"target_samples": self.target_samples, "budget": self.budget, "deadline": hours}
        given = {key: value for key, value in asked.items() if value is not None}
        return form.model_copy(update=given | {"spot": self.spot or form.spot})


@with_groups
def command(
    scenario: ScenarioArg,
    *,
    options: PlanOptions,
    plot: Annotated[Path | None, drawing("a still picture", "Plot time against cost, as .png, .svg or .pdf.")] = None,
    explain: ExplainOpt = False,
    json_to: JsonOpt = None,
    set_keys: SetOpt = None,
) -> None:
    """Find the cheapest instances to rent for a training run, by deadline and budget."""
    check_outputs(json_to, plot, options.kept)
    answer = plan(scenario, *(set_keys or ()), **vars(options), progress=TerminalProgress())
    deliver(answer, json_to, draw_to(answer, plot, json_to), explain=explain)


@dataclass(frozen=True, kw_only=True)
class PlanRow(AnswerRecord):
    """A choice within the limits; times are hours, money is dollars."""

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
    price_date: str
    price_is_old: bool
    samples_per_s: float
    efficiency: float
    bottleneck: str
    mesh: str
    hours: float
    hours_80: tuple[float, float]
    cost: float
    cost_80: tuple[float, float]
    chance_within_limits: float
    front: bool

    def cells(self, has_limits: bool) -> list[str]:
        """Return the row as it is shown, with the chance to keep the limits where there are any."""
        return [
            f"{self.rank}{'*' * self.front}",
            self.label,
            *([self.mesh] if self.mesh else []),
            self.bottleneck,
            format_digits(self.hours),
            format_digits(self.cost),
            " to ".join(map(format_digits, self.cost_80)),
            f"{self.price_per_hour:.2f}{OLD * self.price_is_old}",
            *([f"{self.chance_within_limits:.0%}"] if has_limits else []),
        ]


@dataclass(frozen=True, kw_only=True)
class MeasureFirst(AnswerRecord):
    """A short run that is expected to bring more than it costs."""

    run: str
    minutes: float
    costs: float
    saves: float  # dollars, expected
    uncertainty_before: float  # of the cost of the first over that of its rival: plus or minus, 80 %
    uncertainty_after: float


@dataclass(frozen=True, repr=False, kw_only=True)
class PlanAnswer(Answer):
    """What ``plan`` found: the choices within the limits, the cheapest first."""

    kind = "plan"

    title: str
    file: str
    model: str
    target_samples: float
    deadline_hours: float | None
    budget: float | None
    prices: str
    prices_newest: str
    choices: tuple[PlanRow, ...]
    beyond_limits: int
    chance_first: float
    rival: str | None
    chance_rival: float
    break_evens: tuple[BreakEven, ...]
    measure_first: MeasureFirst | None
    notes: tuple[str, ...]
    advice: str
    does_not_fit: tuple[str, ...] = ()  # GPUs that keep less than the training needs, which have no choice
    interrupted: bool = False

    def to_dict(self) -> dict[str, Any]:
        return super().to_dict() | {"interrupted": self.interrupted}

    def draw(self, path: Path | str) -> None:
        """Write time against money as .png, .svg or .pdf. Raise InputError for another suffix."""
        dots = [
            viz.Priced(
                row.label,
                row.gpu,
                (row.hours_80[0], row.hours, row.hours_80[1]),
                (row.cost_80[0], row.cost, row.cost_80[1]),
                row.front,
            )
            for row in self.choices
        ]
        subtitle = f"{self.target_samples:,.0f} samples; prices of {self.prices_newest} and before; lines: 80 %"
        limits = self.deadline_hours or inf, self.budget or inf
        viz.write_figure(viz.money_figure(f"{self.title}: what it takes and costs", subtitle, dots, limits), path)

    def show(self) -> Iterator[Part]:
        """Yield the cheapest choices, with those of the Pareto front, then break-even points and the advice."""
        shown = [row for number, row in enumerate(self.choices) if number < MOST_ROWS or row.front]
        meshes = ["mesh"] if any(row.mesh for row in shown) else []
        has_limits = self.deadline_hours is not None or self.budget is not None
        headings = ["", "machines", *meshes, "bottleneck", "hours", "$", "80 %", "$/h", *["kept"] * has_limits]
        title = f"{self.title}: {self.target_samples:,.0f} samples"
        yield Table(title, headings, [row.cells(has_limits) for row in shown], words=3)
        if self.does_not_fit:
            yield f"the training does not fit on: {', '.join(self.does_not_fit)}"
        most = dict.fromkeys(row.bottleneck.split()[0] for row in shown)
        words = [f"{name}: {WORDS[name]}" for name in most if name in WORDS and name != "compute"]
        held = "; ".join(["bottleneck: the largest part of a step besides compute, and its share", *words])
        marks = "*: on the Pareto front, nothing else is both sooner and cheaper"
        if has_limits:
            marks += "; kept: how likely deadline and budget are"
        if any(row.price_is_old for row in shown):
            marks += f"; {OLD}: a price that is older than {OLD_AFTER_DAYS} days, or may be, as its source has no date"
        more = len(self.choices) - len(shown)
        notes = [*self.notes, *([f"{more} dearer choices are not shown (--json has all)"] if more else [])]
        points = [f"break-even: {point.text}" for point in self.break_evens]
        yield Sentences([*notes, *points, held, marks, self.advice])


def plan(
    scenario: str | Path,
    *overrides: str,
    executor: Executor | None = None,
    progress: Progress | None = None,
    today: date | None = None,
    **asked: Any,
) -> PlanAnswer:
    """Choose machines to rent for a scenario's training; what is given here comes before its ``[plan]``.

    The other keywords are the fields of ``PlanOptions``: ``target_samples``, ``budget`` in dollars, ``deadline`` in
    hours or a text such as "3 days", ``spot``, ``prices``, a file in the columns of ``simcomm/renting/prices.csv``, and
    ``kept``, a file whose rates are not predicted again. ``executor`` is any of ``concurrent.futures`` in place of this
    machine's cores. An interrupt ends predicting, and the plan is of what is done. Raises InputError, and
    KeyboardInterrupt where nothing is done yet.

    >>> found = plan("quickstart", "training.model='resnet50'", "plan.known_rates={'V100' = 400.0}", target_samples=1e8)
    >>> found.choices[0].cost <= found.choices[1].cost
    True
    """
    options, when = PlanOptions(**asked), today or date.today()
    form = read_planned_training(str(scenario), overrides)
    path = form.path
    wanted = options.applied(form.plan)
    samples = _samples(form, wanted)
    with refusals_about(f"{path}: training"):
        job = find_job(form.training, path.parent)
    rentals, known = _offered(read_rentals(options.prices), wanted, path), _known_rates(form)
    with refusals_about(str(path)):
        predicting = _predicting(form, job, known, {one.gpu for one in rentals})
    with refusals_about(f"{path}: training"):
        fitting, too_small = fitting_choices([*list_choices(rentals, wanted.most_nodes, wanted.spot)], predicting)
    questions, unknown = _questions(fitting, predicting)
    spot = Interruptions(wanted.interruptions_per_day, wanted.lost_per_interruption)

    named = [(choice.instances, question) for choice, question in questions]
    rates = dict[int, Rate]()
    with computing(progress, f"predicting {len(named)} choices of machines") as tick, keeping(rates) as interruption:
        for number, rate in predict_all(named, executor=executor, kept=options.kept):
            rates[number] = rate
            tick(0, len(rates), len(named), "choices")
    quotes = [make_quote(questions[number][0], rate, samples, spot) for number, rate in sorted(rates.items())]
    limits = PlanLimits(wanted.deadline or inf, wanted.budget or inf)
    found = make_plan(quotes, limits, predicting.predict, spot)

    source = "snapshot" if options.prices is None else str(options.prices)
    notes = [_note_on_prices(rentals, f"the {source}" if options.prices is None else source, when)]
    notes += [*predicting.notes, *_notes_on_choices(found, len(quotes), unknown)]
    return PlanAnswer(
        title=form.title,
        file=str(path),
        model=job.model.model,
        target_samples=samples,
        deadline_hours=wanted.deadline,
        budget=wanted.budget,
        prices=source,
        prices_newest=newest_date(rentals).isoformat(),
        choices=tuple(_row(rank, one, found, limits, when) for rank, one in enumerate(found.quotes, start=1)),
        beyond_limits=found.beyond,
        chance_first=found.chance_first,
        rival=found.rival.choice.label if found.rival else None,
        chance_rival=found.chance_rival,
        break_evens=found.break_evens,
        measure_first=_measure_first(found),
        notes=tuple(notes),
        advice=advise(found),
        does_not_fit=tuple(too_small),
        interrupted=interruption.came,
    )


def _notes_on_choices(found: RentalPlan, quoted: int, unknown: Collection[str]) -> Iterator[str]:
    if found.beyond:
        yield f"{found.beyond} of {quoted} choices are beyond the deadline or the budget"
    if unknown:
        yield f"left out, as too little is known of it: {', '.join(sorted(unknown))}"


def _samples(form: PlannedTraining, wanted: PlanForm) -> float:
    """Return how many samples to train on: as asked, else those of all epochs. Raise InputError without either."""
    epoch = form.training.epoch
    if wanted.target_samples is None and epoch is None:
        raise InputError(
            f"{form.path}: plan.target_samples is missing; set it, pass --target-samples, or set "
            "training.samples_per_epoch and epochs"
        )
    return wanted.target_samples or float((epoch or 0) * form.training.epochs)


def _offered(rentals: Sequence[Rental], wanted: PlanForm, path: Path) -> list[Rental]:
    """Return the rentals of the providers that are asked for. Raise InputError for one that there is not."""
    known = sorted({one.provider for one in rentals})
    for name in wanted.providers:
        if name not in known:
            raise InputError(f"{path}: plan.providers: unknown provider {quote(name)}; {suggest(name, known)}")
    return [one for one in rentals if not wanted.providers or one.provider in wanted.providers]


def _known_rates(form: PlannedTraining) -> dict[str, float]:
    """Return the samples a second of one GPU by its type: as stated, and as profiles beside the scenario have them."""
    compute, files = form.training.compute, [*form.plan.profiles]
    found = dict(form.plan.known_rates)
    if compute is not None and compute.rate is not None and compute.gpu is not None:
        found[compute.gpu] = compute.rate
    if compute is not None and compute.profile is not None and compute.profile not in shipped_model_profiles():
        files.append(compute.profile)
    places = [form.path.parent / name for name in files]
    return found | dict(measured_rate(read_model_profile(place), str(place)) for place in places)


def _predicting(
    form: PlannedTraining, job: TrainingJob, known: Mapping[str, float], gpus: Collection[str]
) -> AnyPredicting:
    """Return what predicts rates: closed forms those of a language model of which none is stated."""
    language = replace(job, optimizer=named_optimizer(form.training))
    if not known and form.training.compute is None and is_language(language):
        own = {gpu: runs for gpu in sorted(gpus) if (runs := find_own_runs(gpu, job.framework)) is not None}
        is_free = "parallelism" not in form.training.model_fields_set and is_expressible(language)
        return LanguagePredicting(language, is_free, own)
    return Predicting(job, GpuRates(job, known, gpus).rate)


def _questions(
    choices: Sequence[Choice], predicting: AnyPredicting
) -> tuple[list[tuple[Choice, AnyQuestion]], dict[str, str]]:
    """Return the choices with what is asked of each, and by GPU why nothing can be said. Raise InputError for none."""
    found, unknown = list[tuple[Choice, AnyQuestion]](), dict[str, str]()
    for choice in choices:
        try:
            found.append((choice, predicting.question(choice)))
        except InputError as error:
            unknown[choice.rental.gpu] = str(error)
    if len(found) > MOST_CASES:
        raise InputError(
            f"{len(found):,} candidate machines; at most {MOST_CASES:,} can be compared. Reduce the "
            "price list, plan.providers or plan.most_nodes"
        )
    if not found:
        raise InputError(f"none of the GPUs for sale is known: {next(iter(unknown.values()))}")
    return found, unknown


def _note_on_prices(rentals: Sequence[Rental], source: str, today: date) -> str:
    old = sum(is_old(one, today) for one in rentals)
    more = f"; {old} of {len(rentals)} are or may be older than {OLD_AFTER_DAYS} days: look at today's first"
    return f"prices of {source}, the newest of {newest_date(rentals).isoformat()}{more if old else ''}"


def _row(rank: int, one: Quote, found: RentalPlan, limits: PlanLimits, today: date) -> PlanRow:
    choice, rental = one.choice, one.choice.rental
    return PlanRow(
        rank=rank,
        label=choice.label,
        provider=rental.provider,
        instance=rental.instance,
        region=rental.region,
        gpu=rental.gpu,
        gpus=choice.gpus,
        nodes=choice.nodes,
        market=choice.market,
        price_per_hour=choice.price,
        price_date=rental.dated.isoformat(),
        price_is_old=is_old(rental, today),
        samples_per_s=one.rate.rate.median,
        efficiency=one.rate.efficiency,
        bottleneck=one.rate.bottleneck,
        mesh=one.rate.mesh,
        hours=one.hours.median,
        hours_80=one.hours.interval(SHARE),
        cost=one.cost.median,
        cost_80=one.cost.interval(SHARE),
        chance_within_limits=one.chance_within(limits.deadline, limits.budget),
        front=one in found.front,
    )


def _measure_first(found: RentalPlan) -> MeasureFirst | None:
    best = found.measure
    return best and MeasureFirst(
        run=best.measurement.what,
        minutes=MINUTES,
        costs=best.measurement.price,
        saves=best.saves,
        uncertainty_before=half_width(best.before),
        uncertainty_after=half_width(best.after),
    )
