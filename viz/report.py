"""The numbers of an answer in tables, in units that suit them, predicted beside measured; nothing is computed anew."""

import json
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from collectives.checks import check_path
from collectives.errors import InputError
from collectives.input_files import read_bytes
from collectives.output_files import write_text
from collectives.quoting import make_printable
from collectives.units import format_size, format_time
from viz.file_types import check_file

Entry = Mapping[str, Any]
Format = Callable[[float], str]

GOOD, FAIR = 0.10, 0.25  # up to these errors a prediction is called so


class Cell(NamedTuple):
    """One field: its words, its kind, a smaller note below, and the length of a bar under it (0: none, 1: full)."""

    words: str
    kind: str = "number"  # number, name, good, fair or poor
    note: str = ""
    share: float = 0.0


class ReportTable(NamedTuple):
    """Groups of columns (title and number of columns), a head for each column, and the rows."""

    groups: list[tuple[str, int]]
    heads: list[str]
    rows: list[list[Cell]]


class Metric(NamedTuple):
    """A number of an entry: its key, its title and the function that formats it."""

    key: str
    title: str
    write: Format


def format_rate(gigabytes: float) -> str:
    """Return a rate in GB/s as text, in decimal units as nccl-tests has them.

    >>> format_rate(0.0057)
    '5.7 MB/s'
    """
    return f"{gigabytes:.3g} GB/s" if gigabytes >= 0.1 else f"{gigabytes * 1e3:.3g} MB/s"


def format_percent(share: float) -> str:
    """Return a share as text.

    >>> format_percent(0.965)
    '96.5 %'
    """
    return f"{100 * share:.1f} %"


def format_error(share: float) -> str:
    """Return a share as text, always with a sign.

    >>> format_error(-0.031)
    '−3.1 %'
    """
    return f"{100 * share:+.1f} %".replace("-", "−")


def format_count(number: float) -> str:
    """Return a whole or large number in groups of three digits, any other with three significant digits.

    >>> format_count(4311), format_count(0.12345)
    ('4,311', '0.123')
    """
    return f"{number:,.0f}" if number >= 100 or number == int(number) else f"{number:.3g}"


COLLECTIVE = (
    Metric("time_s", "time", format_time),
    Metric("algbw_GBps", "algbw", format_rate),
    Metric("busbw_GBps", "busbw", format_rate),
)
TRAINING = (
    Metric("step_s", "step", format_time),
    Metric("forward_s", "forward", format_time),
    Metric("backward_s", "backward", format_time),
    Metric("sync_s", "sync (waiting included)", format_time),
    Metric("optimizer_s", "optimizer", format_time),
    Metric("samples_per_s", "samples per second", format_count),
    Metric("scaling_efficiency", "scaling efficiency", format_percent),
    Metric("test_accuracy", "test accuracy", format_percent),
    Metric("examples_seen", "examples seen", format_count),
)


def collectives_table(entries: Sequence[Entry]) -> ReportTable:
    """Return the table of collectives: a row per entry, a group of columns per metric."""
    metrics = [metric for metric in COLLECTIVE if any(metric.key in entry for entry in entries)]
    wide = [any(isinstance(entry.get(metric.key), Mapping) for entry in entries) for metric in metrics]
    titles = [metric.title for metric in metrics]
    groups, heads = _headings(
        [("algorithm", False), ("ranks", False), ("size", False), *zip(titles, wide, strict=True)]
    )
    rows = []
    for entry in entries:
        row = _identity(entry)
        for metric, split in zip(metrics, wide, strict=True):
            row += _fields(entry, metric, split)
        rows.append(_with_time(row, entry, entries))
    return ReportTable(groups, heads, rows)


_SIDES = ["predicted", "measured", "error"]


def _headings(columns: Sequence[tuple[str, bool]]) -> tuple[list[tuple[str, int]], list[str]]:
    """Return the groups and heads of columns, each given by a title and whether it is split in three.

    There are no groups where no column is split.
    """
    if not any(split for _, split in columns):
        return [], [title for title, _ in columns]
    groups = [(title if split else "", 3 if split else 1) for title, split in columns]
    return groups, [head for title, split in columns for head in (_SIDES if split else [title])]


def _identity(entry: Entry) -> list[Cell]:
    """Return the cells with the name, the ranks and the size of an entry."""
    name = Cell("/".join(str(entry[key]) for key in ("collective", "algorithm") if key in entry), "name")
    return [
        name,
        Cell(format_value(entry.get("world_size"), format_count)),
        Cell(format_value(entry.get("bytes"), format_size)),
    ]


def _fields(entry: Entry, metric: Metric, split: bool) -> list[Cell]:
    """Return the cells of one metric: one, or in a comparison predicted, measured and error."""
    value = entry.get(metric.key)
    if not split:
        return [Cell(format_value(value, metric.write))]
    if not isinstance(value, Mapping):
        return [Cell("–"), Cell(format_value(value, metric.write)), Cell("–")]
    predicted, measured = (Cell(format_value(value.get(side), metric.write)) for side in _SIDES[:2])
    return [predicted, measured, _error(value.get("error"), bool(value.get("trusted", True)))]


def _error(error: object, is_trusted: bool) -> Cell:
    """Return the cell of a prediction's error, marked as good, fair or poor, or as not to be trusted."""
    if not isinstance(error, int | float) or not isfinite(error):
        return Cell("–")
    if not is_trusted:
        return Cell(f"{format_error(error)} ?")
    kind = "good" if abs(error) <= GOOD else "fair" if abs(error) <= FAIR else "poor"
    return Cell(format_error(error), kind)


def format_value(value: object, write: Format | type[str]) -> str:
    """Return a number as ``write`` formats it; a dash for None, and what is no number as it is."""
    if value is None:
        return "–"
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
        return str(value)
    return write(value)


def _with_time(row: list[Cell], entry: Entry, entries: Sequence[Entry]) -> list[Cell]:
    """Return the row with the range below each time, and a bar: its share of the slowest in the same case."""
    rivals = [other for other in entries if _case(other) == _case(entry)]
    for column, side in enumerate(_SIDES[:2] if isinstance(entry.get("time_s"), Mapping) else [""], start=3):
        own, low, high = (_side(entry.get(key), side) for key in ("time_s", "time_min_s", "time_max_s"))
        slowest = max((_side(rival.get("time_s"), side) or 0.0 for rival in rivals), default=0.0)
        note = (
            f"{format_time(low)} to {format_time(high)}" if low is not None and high is not None and low < high else ""
        )
        share = own / slowest if own and slowest and len(rivals) > 1 else 0.0
        row[column] = row[column]._replace(note=note, share=share)
    return row


def _case(entry: Entry) -> tuple[Any, ...]:
    """Return what algorithms are compared at: the collective, the ranks and the size."""
    return entry.get("collective"), entry.get("world_size"), entry.get("bytes")


def _side(value: object, side: str) -> float | None:
    """Return the predicted or the measured half of a value, or a plain value itself; None if it is no number."""
    number = value.get(side) if isinstance(value, Mapping) else value
    return float(number) if isinstance(number, int | float) and isfinite(number) else None


def training_tables(entries: Sequence[Entry]) -> Iterator[ReportTable]:
    """Yield tables of trainings: a row per metric, a group of columns per entry, a few entries to fit a page."""
    split = any(isinstance(entry.get(metric.key), Mapping) for entry in entries for metric in TRAINING)
    for some in _in_groups(entries, 3 if split else 6):
        metrics = [metric for metric in TRAINING if any(metric.key in entry for entry in some)]
        groups, heads = _headings([("", False), *((_training_title(entry), split) for entry in some)])
        rows = [
            [Cell(metric.title, "name"), *(cell for entry in some for cell in _fields(entry, metric, split))]
            for metric in metrics
        ]
        yield ReportTable(groups, heads, rows)


def what_if_table(answer: Mapping[str, Any]) -> ReportTable | None:
    """Return a row a what-if: its step, or its collective at the largest size, and how many times as long it takes.

    Of several algorithms it is the quickest of the answer's own. None without what-ifs or without times.
    """
    parts = [answer, *(answer.get("what_if") or [])]
    found = [_times(part) for part in parts]
    if len(parts) < 2 or not found[0]:
        return None
    chosen = min(found[0], key=lambda name: found[0][name])
    own = found[0][chosen]
    rows: list[list[Cell]] = []
    titles = ["as it is", *(str(part.get("title", "")) for part in parts[1:])]
    for title, times in zip(titles, found, strict=True):
        then = times.get(chosen)
        factor = f"{then / own:.3g} times" if then and rows else "–"
        rows.append([Cell(title, "name"), Cell(format_time(then) if then else "never ends"), Cell(factor)])
    what = "step" if answer.get("training") else "time"
    return ReportTable([], [f"with {', '.join(map(str, chosen))}", what, "as long"], rows)


def _times(part: Mapping[str, Any]) -> dict[tuple[str, ...], float]:
    """Return the predicted seconds of each training, or of each collective at the largest size, by its name."""
    seconds: dict[tuple[str, ...], float | None]
    if part.get("training"):
        seconds = {(one.get("gradient_sync", ""),): _predicted(one.get("step_s")) for one in part["training"]}
    else:
        entries = part.get("collectives") or []
        largest = max((one.get("bytes") or 0 for one in entries), default=0)
        seconds = {
            (one.get("algorithm", ""), format_size(largest)): _predicted(one.get("time_s"))
            for one in entries if one.get("bytes") == largest
        }  # fmt: skip
    return {name: time for name, time in seconds.items() if time}


def _predicted(value: object) -> float | None:
    return _side(value, "predicted")


def _in_groups(entries: Sequence[Entry], size: int) -> Iterator[Sequence[Entry]]:
    return (entries[start : start + size] for start in range(0, len(entries), size))


def _training_title(entry: Entry) -> str:
    ranks = entry.get("world_size")
    return f"{entry.get('gradient_sync', '–')}, {ranks} {'rank' if ranks == 1 else 'ranks'}"


if TYPE_CHECKING:
    from jinja2 import Environment

_KINDS = {
    "prediction": ("Prediction", "Simulated; times are virtual."),
    "measurement": ("Measurement", "Real processes; a time is the median over repetitions, with the range below it."),
    "comparison": (
        "Prediction and measurement",
        "error = (predicted − measured) / measured. Below a time its range; the bar is its share of the slowest "
        "algorithm's in the same case.",
    ),
}
SPACES = "\n\t\xa0\u2009\u202f"  # that are not printable by themselves, and harmless
_SIGNATURES = {b"\x89PNG": "image/png", b"GIF8": "image/gif", b"\xff\xd8\xff": "image/jpeg"}


def write_report(
    answer: Mapping[str, Any],
    pictures: Mapping[str, bytes | Path],
    path: Path | str,
    player: str = "",
    compared: Mapping[str, bytes | Path] | None = None,
    headline: str = "",
    critical: Mapping[str, bytes | Path] | None = None,
    assumptions: Sequence[str] = (),
) -> None:
    """Write the answer of ``predict``, ``run`` or ``compare``, and pictures by caption, as one HTML file.

    ``player`` is a page of ``render_player``, shown within; ``critical`` are pictures of the critical path and
    ``compared`` of predicted against measured. From top to bottom: the question, the ``headline`` that answers it, the
    pictures, what limits it with the player, what-ifs, predicted against measured, the ``assumptions`` with where the
    numbers come from, and every number folded away.

    The file needs nothing from outside. Raises InputError for another suffix than ``.html``, an unknown kind of answer,
    and a picture that cannot be read or is neither PNG, GIF nor JPEG.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     write_report({"kind": "prediction", "conclusions": ["Ring is faster."]}, {}, Path(folder, "report.html"))
    ...     "<li>Ring is faster.</li>" in Path(folder, "report.html").read_text()
    True
    """
    path = check_file(path, "a report")
    write_text(path, render_report(answer, pictures, player, compared, headline, critical, assumptions))


def render_report(
    answer: Mapping[str, Any],
    pictures: Mapping[str, bytes | Path],
    player: str = "",
    compared: Mapping[str, bytes | Path] | None = None,
    headline: str = "",
    critical: Mapping[str, bytes | Path] | None = None,
    assumptions: Sequence[str] = (),
) -> str:
    """Return the report as HTML text. Raises InputError as ``write_report`` does."""
    content = _content(answer, headline)
    shown = {"pictures": _embed(pictures), "critical": _embed(critical or {}), "compared": _embed(compared or {})}
    page = _environment().get_template("report.html.jinja")
    return page.render(content, player=player, assumptions=list(assumptions), **shown)


def render_tables(answer: Mapping[str, Any]) -> str:
    """Return an answer's title, conclusions and tables as HTML, for a page that is there, such as a notebook's.

    >>> render_tables({"scenario": {"title": "a < b"}, "conclusions": ["Ring is faster."]}).splitlines()[:2]
    ['<p><b>a &lt; b</b></p>', '<p>Ring is faster.</p>']
    """
    text = """{% from "tables.html.jinja" import results -%}
<p><b>{{ title }}</b></p>
{% for one in conclusions %}
<p>{{ one }}</p>
{% endfor %}
{{ results(main) }}
{% for part in what_if %}
<details><summary>{{ part.title }}</summary>{{ results(part) }}</details>
{% endfor %}
"""
    title, conclusions = (answer.get("scenario") or {}).get("title", ""), answer.get("conclusions") or []
    what_if = [_results(part) for part in answer.get("what_if") or []]
    return (
        _environment()
        .from_string(text)
        .render(title=title, conclusions=conclusions, main=_results(answer), what_if=what_if)
    )


def _environment() -> "Environment":
    from jinja2 import Environment, PackageLoader, StrictUndefined

    return Environment(
        loader=PackageLoader("viz", ""),
        autoescape=True,
        finalize=_show,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _show(value: object) -> object:
    """Return what a page shows of a value: text without letters that would turn or hide what follows."""
    if not isinstance(value, str) or hasattr(value, "__html__"):
        return value
    return make_printable(value, keep=SPACES, most=len(value))


def _content(answer: object, headline: str) -> dict[str, Any]:
    """Return what the template fills in."""
    if not isinstance(answer, Mapping):
        raise InputError(f"answer is {answer!r}; give what the to_dict() of an answer returns")
    kind = answer.get("kind")
    if kind not in _KINDS:
        raise InputError(f"a report is of kind {', '.join(_KINDS)}; this result has kind {kind!r}")
    heading, explanation = _KINDS[kind]
    scenario, environment = answer.get("scenario") or {}, answer.get("environment") or {}
    return {
        "kind": kind,
        "title": scenario.get("title") or "Ringlab",
        "subtitle": "" if kind == "prediction" else _subtitle(environment),  # it says nothing about virtual time
        "heading": heading,
        "explanation": explanation,
        "question": _question(answer, scenario),
        "headline": headline,
        "conclusions": [one for one in answer.get("conclusions") or [] if one != headline],
        "explanations": answer.get("explanations") or [],
        "limits": answer.get("limits") or "",
        "main": _results(answer),
        "what_if": [_results(part) for part in answer.get("what_if") or []],
        "what_if_summary": what_if_table(answer),
        "origins": [("Scenario", list(_flatten(scenario))), ("Environment", list(_flatten(environment)))],
        "everything": json.dumps(answer, indent=2, ensure_ascii=False, default=str),
    }


def _question(answer: Mapping[str, Any], scenario: Mapping[str, Any]) -> str:
    """Return what the answer answers, as a question."""
    where = f" on {scenario['cluster']}" if isinstance(scenario.get("cluster"), str) else ""
    names = list(dict.fromkeys(one.get("collective", "") for one in answer.get("collectives") or []))
    if answer.get("training"):
        return f"How long does a training step take{where}, and what limits it?"
    return f"How fast is {' and '.join(names)}{where}, and what limits it?" if names else ""


def _embed(pictures: Mapping[str, bytes | Path]) -> list[tuple[str, str]]:
    return [(caption, _as_data_uri(caption, picture)) for caption, picture in pictures.items()]


def _results(part: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tables of an answer or of one of its what-ifs."""
    collectives, training = part.get("collectives") or [], part.get("training") or []
    return {
        "title": part.get("title", ""),
        "collectives": collectives_table(collectives) if collectives else None,
        "training": list(training_tables(training)),
    }


def _subtitle(environment: Mapping[str, Any]) -> str:
    cores = environment.get("cores")
    parts = [environment.get("cpu"), f"{cores} {'core' if cores == 1 else 'cores'}" if cores else None]
    parts += [f"{name} {environment[name]}" for name in ("python", "torch") if name in environment]
    return "  ·  ".join(str(part) for part in parts if part)


def _flatten(content: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield each value under its full key, such as ``cluster.bandwidth``, both as text."""
    for key, value in content.items():
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _as_data_uri(caption: str, picture: bytes | Path) -> str:
    """Return the picture as a data URI."""
    content = picture if isinstance(picture, bytes) else read_bytes(check_path("picture", picture))
    mime = next((mime for start, mime in _SIGNATURES.items() if content.startswith(start)), None)
    if mime is None:
        raise InputError(f"picture {caption!r} is neither PNG, GIF nor JPEG")
    return f"data:{mime};base64,{b64encode(content).decode()}"
