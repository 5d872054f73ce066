"""What ``ringlab search`` answers: meshes with rates, memory and money, as records and tables."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import viz
from planner.search import FoundMeshes, SearchedMesh, pareto_front
from planner.step import PARTS
from ringlab.shared.answer import NOT_IN_JSON, Answer, AnswerRecord
from ringlab.table import NOTHING, Part, Sentences, Table, format_digits, format_interval

BROKEN = {  # names of parts that are too long for a column
    "compute": "com-\npute", "pipeline": "pipe-\nline", "optimizer": "opti-\nmizer", "processes": "pro-\ncesses",
    "stragglers": "strag-\nglers",
}  # fmt: skip
GIB = 2**30
TOKENS, BILLION = "tokens/s (80 %)", "$ a billion\ntokens"


@dataclass(frozen=True, kw_only=True)
class Money(AnswerRecord):
    """What a training on so many tokens takes and costs, with intervals of 80 %."""

    hours: float
    hours_interval: tuple[float, float]
    dollars: float | None = None
    dollars_interval: tuple[float, float] | None = None
    chance_within_limits: float | None = None


@dataclass(frozen=True, kw_only=True)
class MeshRow(AnswerRecord):
    """A mesh with what is predicted of it."""

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
    step_interval: tuple[float, float]
    parts: dict[str, float]
    tokens_per_s: float
    tokens_interval: tuple[float, float]
    mfu: float
    tflops_per_gpu: float
    memory_bytes: float
    memory_parts: dict[str, float]
    host_bytes: float
    chance_to_run: float
    dollars_per_billion_tokens: float | None = None
    dollars_interval: tuple[float, float] | None = None
    money: Money | None = None


@dataclass(frozen=True, kw_only=True)
class RemedyRow(AnswerRecord):
    """A change with which a training fits, and the fastest mesh then."""

    change: str
    best: MeshRow


@dataclass(frozen=True, kw_only=True)
class Learning(AnswerRecord):
    """Runs of which the times would tell most, and half the interval of all meshes before and after."""

    runs: tuple[str, ...]
    within: float
    within_after: float


@dataclass(frozen=True, kw_only=True)
class Case(AnswerRecord):
    """What was found for one number of devices, of one value of what varies."""

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
    losers: tuple[tuple[str, str], ...] = ()  # kinds of meshes, and why each loses
    would_fit: tuple[RemedyRow, ...] = ()


@dataclass(frozen=True, kw_only=True)
class SearchAnswer(Answer):
    """What ``ringlab search`` found."""

    kind = "search"
    title: str
    file: str
    model: str
    precision: str
    notes: tuple[str, ...]
    cases: tuple[Case, ...]
    key: str | None = None  # what varies
    refused: tuple[str, ...] = ()  # values that cannot be, and why
    tokens: float | None = None
    found: tuple[FoundMeshes, ...] = field(default=(), compare=False, metadata=NOT_IN_JSON)

    def show(self) -> Iterator[Part]:
        """Yield cases beside each other where there are several, else the fastest meshes of the one."""
        if len(self.cases) > 1:
            yield self._overview()
        for case in self.cases if self.key is None else ():
            yield from self._case(case)
        if self.tokens is not None:
            yield self._bill()
            yield Sentences(tuple(self._choice()), wrap=True)
        if self.refused or self.notes:
            yield Sentences((*self.refused, *self.notes), wrap=True)

    def _overview(self) -> Table:
        heads = [*self._key_heads(), "fastest that fits", TOKENS, "MFU", BILLION]
        rows = [[*self._key_cells(case), *_best_cells(case)] for case in self.cases]
        return Table(f"{self.model}: the fastest of each", heads, rows, words=len(self._key_heads()) + 1)

    def _bill(self) -> Table:
        """Return what so many tokens take and cost, a line a case that fits."""
        heads = [*self._key_heads(), "days (80 %)", "$ (80 %)", "chance"]
        rows = []
        for case in self.cases:
            money = case.best[0].money if case.best else None
            if money is not None:
                low, high = money.hours_interval
                days = _around(money.hours / 24, (low / 24, high / 24))
                cost = NOTHING
                if money.dollars is not None and money.dollars_interval is not None:
                    cost = _whole(money.dollars, money.dollars_interval)
                chance = NOTHING if money.chance_within_limits is None else f"{money.chance_within_limits:.0%}"
                rows.append([*self._key_cells(case), days, cost, chance])
        return Table(f"{self.tokens:.3g} tokens", heads, rows)

    def _key_heads(self) -> list[str]:
        return ["devices"] if self.key is None else [self.key, "devices"]

    def _key_cells(self, case: Case) -> list[str]:
        return [str(case.devices)] if self.key is None else [case.value, str(case.devices)]

    def _choice(self) -> Iterator[str]:
        """Yield which case is cheapest of those that likely keep the limits."""
        rows = [(case, case.best[0]) for case in self.cases if case.best]
        priced = [(case, row, row.money) for case, row in rows if row.money is not None]
        within = [one for one in priced if (one[2].chance_within_limits or 0.0) >= 0.5]
        for case, row, money in sorted(
            within, key=lambda one: (one[2].dollars is None, one[2].dollars or one[2].hours)
        )[:1]:
            low, high = money.hours_interval
            cost = ""
            if money.dollars is not None and money.dollars_interval is not None:
                cost = f" for ${_whole(money.dollars, money.dollars_interval)}"
            value = f"{self.key} {case.value}, " if self.key else ""
            days = f"{_around(money.hours / 24, (low / 24, high / 24))} days"
            yield (
                f"For {self.tokens:.3g} tokens, cheapest within the limits: {value}{case.devices} x {case.machine}, "
                f"{row.mesh}: {days}{cost}; within the limits with {money.chance_within_limits or 0:.0%}."
            )
        if priced and not within:
            yield f"For {self.tokens:.3g} tokens none of these is likely within the limits."

    def _case(self, case: Case) -> Iterator[Part]:
        head = f"{self.model} on {case.devices} x {case.machine}, {case.batch} sequences of {case.seq} tokens"
        if not case.best:
            yield from _nothing_fits(head, case)
            return
        yield _rates(head, case)
        yield _seconds(case)
        if case.losers:
            yield Table("Why the others lose", ["kind", "its best mesh"], [list(one) for one in case.losers], words=2)
        yield Sentences(tuple(_sentences(case)), wrap=True)

    def draw(self, path: Path) -> None:
        """Draw rate against memory, with the meshes that no other beats in both."""
        jobs = [
            viz.MeshDots(
                title=f"{one.job.gpus} x {one.job.gpu}, {one.job.batch} sequences of {one.job.seq}",
                rates=one.tokens_per_s.tolist(),
                memory_gib=(one.memory["total"] / GIB).tolist(),
                strategies=[_kind(mesh) for mesh in one.searched],
                names=[mesh.name for mesh in one.searched],
                front=pareto_front(one),
                limit_gib=float(one.columns.memory_bytes[0]) / GIB,
            )
            for one in self.found
        ]
        viz.write_figure(viz.meshes_figure(self.model, jobs), path)


def _kind(mesh: SearchedMesh) -> str:
    """Return what a mesh has beside its data axis, or else what that divides: few enough for a legend."""
    axes = [word for size, word in ((mesh.tp, "tensor"), (mesh.pp, "pipeline")) if size > 1]
    return " and ".join(axes) if axes else mesh.sharding


def _best_cells(case: Case) -> list[str]:
    if not case.best:
        return ["none fits", *[NOTHING] * 3]
    row = case.best[0]
    return [row.mesh, _whole(row.tokens_per_s, row.tokens_interval), f"{row.mfu:.0%}", _dollars(row)]


def _whole(value: float, bounds: tuple[float, float]) -> str:
    """Return a value with its interval as whole numbers of three significant digits.

    >>> _whole(83662.4, (71506.3, 97885.0))
    '83,700 (71,500-97,900)'
    """
    return format_interval(*(f"{float(f'{one:.3g}'):,.0f}" for one in (value, *bounds)))


def _around(value: float, bounds: tuple[float, float]) -> str:
    return format_interval(*map(format_digits, (value, *bounds)))


def _dollars(row: MeshRow) -> str:
    if row.dollars_per_billion_tokens is None or row.dollars_interval is None:
        return NOTHING
    return _around(row.dollars_per_billion_tokens, row.dollars_interval)


def _rates(title: str, case: Case) -> Table:
    rows = [
        [
            str(number), row.mesh, _whole(row.tokens_per_s, row.tokens_interval), f"{row.mfu:.0%}",
            format_digits(row.tflops_per_gpu), _dollars(row),
        ]
        for number, row in enumerate(case.best, 1)
    ]  # fmt: skip
    heads = ["#", "mesh", TOKENS, "MFU", "TFLOP/s\na GPU", BILLION]
    return Table(title, heads, rows, words=2)


def _seconds(case: Case) -> Table:
    """Return the parts of each step, by the number that the mesh has in the table of rates."""
    shown = [name for name in PARTS if any(abs(row.parts[name]) > 0.005 * row.step_s for row in case.best)]
    has_host = any(row.host_bytes for row in case.best)
    rows = [
        [
            str(number), format_digits(row.step_s), *(f"{row.parts[name] / row.step_s:.0%}" for name in shown),
            f"{row.memory_bytes / GIB:.1f}", *([f"{row.host_bytes / GIB:.0f}"] if has_host else []),
            f"{row.chance_to_run:.0%}",
        ]
        for number, row in enumerate(case.best, 1)
    ]  # fmt: skip
    heads = [
        "#",
        "step\n(s)",
        *(BROKEN.get(name, name) for name in shown),
        "memory\n(GiB)",
        *(["of a host\n(GiB)"] if has_host else []),
        "runs",
    ]
    return Table(None, heads, rows)


def _nothing_fits(head: str, case: Case) -> Iterator[Part]:
    yield f"{head}: none of {case.meshes} meshes fits."
    for name, reason in case.losers:
        yield f"The nearest, {name}: {reason}."
    if not case.would_fit:
        yield "No change of the optimizer, of what is trained or where it is kept, nor 16 times the devices would help."
        return
    rows = [
        [
            one.change, one.best.mesh, _whole(one.best.tokens_per_s, one.best.tokens_interval),
            f"{one.best.memory_bytes / GIB:.1f}",
            f"{one.best.host_bytes / GIB:.0f}" if one.best.host_bytes else NOTHING,
        ]
        for one in case.would_fit
    ]  # fmt: skip
    heads = ["with", "mesh", TOKENS, "memory\n(GiB)", "of a host\n(GiB)"]
    yield Table("What would make it fit, one change each", heads, rows, words=2)


def _sentences(case: Case) -> Iterator[str]:
    is_fastest = case.learning is not None or case.fitting == 1  # of one that is named nothing is to be learnt
    yield f"{case.meshes} meshes, of which {case.fitting} fit{is_fastest * f'; the fastest: {case.best[0].mesh}'}."
    kept = ", ".join(f"{name} {nbytes / GIB:.1f}" for name, nbytes in case.best[0].memory_parts.items())
    yield f"Of its {case.best[0].memory_bytes / GIB:.1f} GiB a device: {kept}."
    if len(case.tries) > 1:
        yield "Try these, which differ in what is uncertain: " + "; ".join(row.mesh for row in case.tries) + "."
    if case.learning is not None:
        one = case.learning
        yield (
            f"Measure these next: {'; '.join(one.runs)}. Given to `ringlab calibrate --runs`, they narrow the 80 % "
            f"interval from {one.within:.0%} to {one.within_after:.0%}."
        )
