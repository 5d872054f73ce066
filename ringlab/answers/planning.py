"""``PlanAnswer``: which machines to rent for a training, by time and money."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import date
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from collectives.checks import check_number
from collectives.errors import InputError
from collectives.quoting import quote, suggest
from collectives.records.model_profile import read_model_profile, shipped_model_profiles
from ringlab.answers.plan_advice import SHARE, advise
from ringlab.shared.answer import SCHEMA_VERSION, Record
from ringlab.shared.models import find_job
from ringlab.shared.progress import Progress, computing
from scenarios.loader import PlannedTraining, read_planned_training
from simcomm.cluster.hardware_parts import memory_bytes, parts
from simcomm.mesh.compute import measured_rate
from simcomm.mesh.job import Job
from simcomm.mesh.memory import check_fit
from simcomm.renting.break_evens import BreakEven
from simcomm.renting.measuring import MINUTES, half_width
from simcomm.renting.plan import Limits, Plan, make_plan
from simcomm.renting.predicting import Predicting, Question, memory_on, predict_all
from simcomm.renting.quotes import Choice, Interruptions, Quote, list_choices, make_quote
from simcomm.renting.rentals import OLD_AFTER_DAYS, Rental, is_old, newest_date, read_rentals
from simcomm.scaling.gpu_rates import GpuRates

if TYPE_CHECKING:
    from scenarios.plan_form import PlanForm

MOST_CHOICES = 6_000  # of machines, which takes some seconds


@dataclass(frozen=True)
class PlanRow(Record):
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
    hours: float
    hours_80: tuple[float, float]
    cost: float
    cost_80: tuple[float, float]
    chance_within_limits: float
    front: bool


@dataclass(frozen=True)
class MeasureFirst(Record):
    """A short run that is expected to bring more than it costs."""

    run: str
    minutes: float
    costs: float
    saves: float  # dollars, expected
    uncertainty_before: float  # of the cost of the first over that of its rival: plus or minus, 80 %
    uncertainty_after: float


@dataclass(frozen=True, repr=False)
class PlanAnswer(Record):
    """What ``plan`` found: the choices within the limits, the cheapest first."""

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
    interrupted: bool = field(default=False)

    def __repr__(self) -> str:
        return f"<PlanAnswer of {self.title!r}: {len(self.choices)} choices>"

    def to_dict(self) -> dict[str, Any]:
        return {"schema_version": SCHEMA_VERSION, "kind": "plan", **super().to_dict()}

    def draw(self, path: Path | str) -> None:
        """Write time against money as .png, .svg or .pdf. Raise InputError for another suffix."""
        import viz  # a table does without what draws

        dots = [_dot(row) for row in self.choices]
        subtitle = f"{self.target_samples:,.0f} samples; prices of {self.prices_newest} and before; lines: 80 %"
        limits = self.deadline_hours or inf, self.budget or inf
        viz.draw_money(f"{self.title}: what it takes and costs", subtitle, dots, limits, path)


def _dot(row: PlanRow) -> Any:
    import viz

    hours = row.hours_80[0], row.hours, row.hours_80[1]
    dollars = row.cost_80[0], row.cost, row.cost_80[1]
    return viz.Priced(row.label, row.gpu, hours, dollars, row.front)


def plan(
    scenario: str | Path,
    *overrides: str,
    target_samples: float | None = None,
    budget: float | None = None,
    deadline: float | str | None = None,
    spot: bool = False,
    prices: Path | str | None = None,
    executor: Executor | None = None,
    kept: Path | str | None = None,
    progress: Progress | None = None,
    today: date | None = None,
) -> PlanAnswer:
    """Choose machines to rent for a scenario's training; what is given here comes before its ``[plan]``.

    ``deadline`` is in hours or a text such as "3 days"; ``prices`` is a file in the columns of
    ``simcomm/renting/prices.csv``; ``executor`` is any of ``concurrent.futures`` in place of this machine's cores. What
    the file ``kept`` holds is not predicted again. An interrupt ends predicting, and the plan is of what is done.
    Raises InputError, and KeyboardInterrupt where nothing is done yet.

    >>> found = plan("quickstart", "training.model='resnet50'", "plan.known_rates={'V100' = 400.0}", target_samples=1e8)
    >>> found.choices[0].cost <= found.choices[1].cost
    True
    """
    from scenarios.plan_form import parse_hours

    form = read_planned_training(str(scenario), overrides)
    path = form.path
    with _said_of("--deadline"):
        hours = None if deadline is None else parse_hours(deadline)
    wanted = _wanted(form, target_samples, budget, hours)
    with _said_of(f"{path}: training"):
        job = find_job(form.training, path.parent)
    rentals, known = _offered(read_rentals(prices), form.plan, str(path)), _known_rates(form)
    with _said_of(str(path)):
        predicting = Predicting(job, GpuRates(job, known, {one.gpu for one in rentals}).rate)
    offered = [*list_choices(rentals, form.plan.most_nodes, spot or form.plan.spot)]
    with _said_of(f"{path}: training"):
        fitting, too_small = _fitting(offered, job)
    choices, questions, unknown = _questions(fitting, predicting)
    interruptions = Interruptions(form.plan.interruptions_per_day, form.plan.lost_per_interruption)
    quotes, interrupted = _predict(choices, questions, wanted.samples, interruptions, executor, kept, progress)
    found = make_plan(quotes, wanted.limits, predicting.predict, interruptions)
    when = today or date.today()
    notes = _notes(rentals, prices, when, unknown, found, len(quotes))
    answer = _answer(form.title, path, job.model.model, wanted, found, when, notes)
    newest, source = newest_date(rentals).isoformat(), "snapshot" if prices is None else str(prices)
    return replace(answer, prices=source, prices_newest=newest, does_not_fit=tuple(too_small), interrupted=interrupted)


@contextmanager
def _said_of(what: str) -> Iterator[None]:
    """Within the context, have a refusal begin with what it is about."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{what}: {error}") from error


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


class _Wanted(NamedTuple):
    """What a training is to do, and within what; a limit that nobody gave is None."""

    samples: float
    deadline: float | None  # hours
    budget: float | None  # dollars

    @property
    def limits(self) -> Limits:
        """The limits of a plan."""
        return Limits(self.deadline or inf, self.budget or inf)


def _wanted(form: PlannedTraining, samples: float | None, budget: float | None, deadline: float | None) -> _Wanted:
    """Return what is wanted: as it is given here, else as the scenario says. Raise InputError without samples."""
    for name, value in (("--target-samples", samples), ("--budget", budget)):
        if value is not None:
            check_number(name, value, above=0)
    whole = form.training.epoch
    samples = samples or form.plan.target_samples or (None if whole is None else float(whole * form.training.epochs))
    if samples is None:
        raise InputError(
            f"{form.path}: plan.target_samples is missing; give the samples to train on, or --target-samples, or "
            "training.samples_per_epoch with epochs"
        )
    late = form.plan.deadline if deadline is None else deadline
    return _Wanted(samples, late, form.plan.budget if budget is None else budget)


def _answer(
    title: str, path: Path, model: str, wanted: _Wanted, found: Plan, today: date, notes: Sequence[str]
) -> PlanAnswer:
    """Return a plan as an answer, whose prices are still to be named."""
    return PlanAnswer(
        title=title,
        file=str(path),
        model=model,
        target_samples=wanted.samples,
        deadline_hours=wanted.deadline,
        budget=wanted.budget,
        prices="",
        prices_newest="",
        choices=tuple(
            _row(number, one, found, wanted.limits, today) for number, one in enumerate(found.quotes, start=1)
        ),
        beyond_limits=found.beyond,
        chance_first=found.chance_first,
        rival=found.rival.choice.label if found.rival else None,
        chance_rival=found.chance_rival,
        break_evens=found.break_evens,
        measure_first=_measure_first(found),
        notes=tuple(notes),
        advice=advise(found),
    )


def _offered(rentals: Sequence[Rental], asked: "PlanForm", where: str) -> list[Rental]:
    """Return the rentals of the providers that are asked for. Raise InputError for one that there is not."""
    known = sorted({one.provider for one in rentals})
    for name in asked.providers:
        if name not in known:
            raise InputError(f"{where}: plan.providers: {quote(name)} sells nothing here; {suggest(name, known)}")
    return [one for one in rentals if not asked.providers or one.provider in asked.providers]


def _fitting(choices: Sequence[Choice], job: Job) -> tuple[list[Choice], list[str]]:
    """Return the choices of which the mesh can be made and on which a batch fits, and the others in words.

    GPUs whose memory is not known are not refused. Raise InputError, with what would fit, where none is left.
    """
    known = {one.rental.gpu for one in choices} & parts("GPU").keys()
    memories = {gpu: memory_bytes(gpu) or inf for gpu in known}
    meshes, fitting, small, reason = dict[tuple[int, int], float](), list[Choice](), list[Choice](), InputError("")
    for one in choices:
        mesh = (one.gpus, one.rental.gpus)
        try:
            if mesh not in meshes:
                meshes[mesh] = memory_on(job, one)
        except InputError as error:
            meshes[mesh], reason = inf, error if mesh >= max(meshes, default=mesh) else reason
        enough = meshes[mesh] <= memories.get(one.rental.gpu, inf)
        if meshes[mesh] < inf:
            (fitting if enough else small).append(one)
    if fitting or not choices:
        return fitting, _too_small(small, {one.rental.gpu for one in fitting})
    if not small:
        raise reason  # of the most GPUs
    largest = max(small, key=lambda one: (memories[one.rental.gpu], -meshes[one.gpus, one.rental.gpus]))
    gpu = largest.rental.gpu
    check_fit(job.on(largest.gpus, largest.rental.gpus), memories[gpu], f"{gpu}, the largest GPU that is for sale")
    raise AssertionError(gpu)


def _too_small(choices: Iterable[Choice], others: Collection[str]) -> list[str]:
    """Return the GPUs of choices, with how many of them do not suffice where more or fewer do.

    >>> from simcomm.renting.rentals import read_rentals
    >>> small = [Choice(read_rentals()[place], 1, "on demand") for place in (0, 1)]
    >>> _too_small(small, set()), _too_small(small, {small[0].rental.gpu})
    (['V100 SXM2 16GB'], ['1 or 4 x V100 SXM2 16GB'])
    """
    counts: dict[str, set[int]] = {}
    for one in choices:
        counts.setdefault(one.rental.gpu, set()).add(one.gpus)
    return [f"{' or '.join(map(str, sorted(counts[gpu])))} x {gpu}" if gpu in others else gpu for gpu in sorted(counts)]


def _questions(
    offered: Sequence[Choice], predicting: Predicting
) -> tuple[list[Choice], list[tuple[str, Question]], dict[str, str]]:
    """Return the choices and what is asked of each, and by GPU why nothing can be said. Raise InputError for none."""
    choices, questions, unknown = list[Choice](), list[tuple[str, Question]](), dict[str, str]()
    for choice in offered:
        try:
            question = predicting.question(choice)
        except InputError as error:
            unknown[choice.rental.gpu] = str(error)
            continue
        choices.append(choice)
        questions.append((choice.instances, question))
    if len(choices) > MOST_CHOICES:
        raise InputError(
            f"{len(choices):,} choices of machines, and {MOST_CHOICES:,} at most can be compared: give fewer prices, "
            "or name some in plan.providers, or a smaller plan.most_nodes"
        )
    if not choices:
        raise InputError(f"nothing is known of the GPUs that are for sale: {next(iter(unknown.values()))}")
    return choices, questions, unknown


def _predict(
    choices: Sequence[Choice],
    questions: Sequence[tuple[str, Question]],
    samples: float,
    interruptions: Interruptions,
    executor: Executor | None,
    kept: Path | str | None,
    progress: Progress | None,
) -> tuple[list[Quote], bool]:
    """Return the quotes that are done, and whether an interrupt came first."""
    found, interrupted = dict[int, Quote](), False
    with computing(progress, f"predicting {len(questions)} choices of machines") as tick:
        try:
            asked = predict_all(questions, executor=executor, kept=kept)
            for number, rate in asked:
                found[number] = make_quote(choices[number], rate, samples, interruptions)
                tick(0, len(found), len(questions), "choices")
        except KeyboardInterrupt:
            if not found:
                raise
            interrupted = True
    return [found[number] for number in sorted(found)], interrupted


def _row(rank: int, one: Quote, found: Plan, limits: Limits, today: date) -> PlanRow:
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
        hours=one.hours.median,
        hours_80=one.hours.interval(SHARE),
        cost=one.cost.median,
        cost_80=one.cost.interval(SHARE),
        chance_within_limits=one.chance_within(limits.deadline, limits.budget),
        front=one in found.front,
    )


def _notes(
    rentals: Sequence[Rental],
    prices: Path | str | None,
    today: date,
    unknown: dict[str, str],
    found: Plan,
    predicted: int,
) -> list[str]:
    newest = newest_date(rentals)
    old = sum(is_old(one, today) for one in rentals)
    source = "the snapshot" if prices is None else str(prices)
    notes = [f"prices of {source}, the newest of {newest.isoformat()}"]
    if old:
        notes[0] += f"; {old} of {len(rentals)} are or may be older than {OLD_AFTER_DAYS} days: look at today's first"
    if found.beyond:
        notes.append(f"{found.beyond} of {predicted} choices are beyond the deadline or the budget")
    if unknown:
        notes.append(f"left out, as too little is known of it: {', '.join(sorted(unknown))}")
    return notes


def _measure_first(found: Plan) -> MeasureFirst | None:
    best = found.measure
    if best is None:
        return None
    return MeasureFirst(
        best.measurement.what,
        MINUTES,
        best.measurement.price,
        best.saves,
        half_width(best.before),
        half_width(best.after),
    )
