"""Makes the rows of ``ringlab search``: for each mesh, a dict with its step time, rates, memory and cost."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from planner.memory import PARTS
from planner.search import FoundMeshes, choose_runs, what_would_fit, why_others_lose, why_too_large
from ringlab.shared.answer import AnswerRecord
from ringlab.shared.machines import DevicePrice
from ringlab.table import Format, format_digits, format_interval

PRICE = "dollars_per_billion_tokens"

Row = dict[str, Any]  # keys of the JSON


@dataclass(frozen=True, kw_only=True)
class Case(AnswerRecord):
    """The meshes that were found for one number of devices and, with ``--what-if``, one value of the varied key."""

    value: str
    devices: int
    machine: str
    batch: int
    seq: int
    meshes: int
    fitting: int
    best: tuple[Row, ...]
    learning: dict[str, Any] | None = None  # runs to measure, with half of the 80 % interval before and after
    losers: tuple[tuple[str, str], ...]  # kinds of meshes with the reasons why they are slower
    would_fit: tuple[dict[str, Any], ...]  # changes that make the training fit, each with its fastest mesh


def format_value(row: Row, name: str, form: Format = format_digits) -> str:
    """Return a value of a row with its interval, or a dash if the row lacks the value."""
    return format_interval(row.get(name), row.get(_interval_of(name)), form)


def _interval_of(name: str) -> str:
    return f"{name.partition('_')[0]}_interval"


Money = tuple[DevicePrice, float | None]  # the price of a device, and the tokens to train on; None if unknown


def make_case(value: str, meshes: FoundMeshes, money: Money, *, top: int, with_reasons: bool, fill: float) -> Case:
    """Return the case with its ``top`` fastest meshes. If none fits, return the reason and changes that would help.

    If ``with_reasons`` is True, add why other meshes are slower.
    """
    chosen, job, names = meshes.order[:top].tolist(), meshes.training.job, [mesh.name for mesh in meshes.searched]
    losers, learning = tuple(why_others_lose(meshes)) if with_reasons and len(meshes.order) > 1 else (), None
    if not chosen:
        nearest = int(meshes.memory["total"].argmin())
        losers = ((names[nearest], why_too_large(meshes, nearest)),)
    if len(meshes.order) > 1:
        runs, before, after = choose_runs(meshes)
        learning = {"runs": [names[number] for number in runs], "within": before, "within_after": after}
    remedies = {} if chosen else what_would_fit(meshes.training, fill)
    return Case(
        value=value, devices=job.parallelism.devices, machine=meshes.training.host.device.name, batch=job.global_batch,
        seq=job.model.tokens, meshes=len(names), fitting=len(meshes.order), best=_make_rows(meshes, chosen, money),
        losers=losers, learning=learning,
        would_fit=tuple(
            {"change": change, "best": _make_rows(found, found.order[:1].tolist(), money)[0]}
            for change, found in remedies.items()
        ),
    )  # fmt: skip


def _make_rows(meshes: FoundMeshes, numbers: Sequence[int], money: Money) -> tuple[Row, ...]:
    factors = meshes.factors(numbers).tolist() if numbers else []
    return tuple(_make_row(meshes, number, factor, money) for number, factor in zip(numbers, factors, strict=True))


def _make_row(meshes: FoundMeshes, number: int, factor: float, money: Money) -> Row:
    """Return the row of mesh ``number``, with 80 % intervals from value / ``factor`` to value * ``factor``."""

    def bounded(name: str, value: float) -> Row:
        return {name: value, _interval_of(name): (value / factor, value * factor)}

    mesh, seconds, rate = meshes.searched[number], float(meshes.step_s[number]), float(meshes.tokens_per_s[number])
    mfu, (price, tokens) = float(meshes.mfu[number]), money
    row = {
        "mesh": mesh.name, "tensor": mesh.tp, "pipeline": mesh.pp, "context": mesh.cp, "expert": mesh.ep,
        "data": mesh.dp, "virtual": mesh.vp, "schedule": mesh.schedule, "strategy": mesh.sharding,
        "micro_batch": mesh.micro_batch, "microbatches": mesh.grad_accum, "recompute": mesh.recompute,
        **bounded("step_s", seconds),
        "parts": {name: float(part[number]) for name, part in meshes.parts.items()},
        **bounded("tokens_per_s", rate),
        "mfu": mfu, "tflops_per_gpu": mfu * float(meshes.columns.peak[number]) / 1e12,
        "memory_bytes": float(meshes.memory["total"][number]),
        "memory_parts": {name: float(meshes.memory[name][number]) for name in PARTS},
        "chance_to_run": float(meshes.chance[number]),
    }  # fmt: skip
    hourly = price.bill(meshes.training.job.parallelism.devices)
    if hourly is not None:
        row |= bounded(PRICE, hourly / 3600 / rate * 1e9)
    if tokens is not None:
        hours = tokens / rate / 3600
        row["money"] = bounded("hours", hours)
        row["money"] |= {} if hourly is None else bounded("dollars", hours * hourly)
    return row
