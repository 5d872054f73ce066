"""Render the results of a command as one HTML report with conclusions, pictures, a player and tables."""

import json
from base64 import b64encode
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from collectives.checks import check_path
from collectives.errors import InputError
from collectives.input_files import read_bytes
from collectives.output_files import write_text
from collectives.quoting import make_printable
from viz.file_types import check_file

Pictures = Mapping[str, bytes | Path]  # PNG, GIF or JPEG, or the file of one, by caption

_KINDS = {
    "prediction": ("Prediction", "Simulated: times are virtual."),
    "measurement": ("Measurement", "Real processes. Each time is the median over repetitions."),
    "comparison": ("Prediction and measurement", "error = (predicted − measured) / measured."),
}
SPACES = "\n\t\xa0\u2009\u202f"  # not printable, but harmless
_SIGNATURES = {b"\x89PNG": "image/png", b"GIF8": "image/gif", b"\xff\xd8\xff": "image/jpeg"}


@dataclass(frozen=True, kw_only=True)
class ReportParts:
    """The parts of a report that are not in the command's results. Tables and the player are HTML.

    ``pictures`` maps captions to images or files. ``critical`` has pictures of the critical path, and ``compared`` has
    pictures of predicted against measured times.
    """

    tables: str = ""
    pictures: Pictures = field(default_factory=dict)
    critical: Pictures = field(default_factory=dict)
    compared: Pictures = field(default_factory=dict)
    player: str = ""
    headline: str = ""


def write_report(answer: Mapping[str, Any], parts: ReportParts, path: Path | str) -> None:
    """Write the results of ``predict``, ``run`` or ``compare`` as one self-contained HTML file.

    ``answer`` is the result's ``to_dict()``. The report starts with the question, the headline and the conclusions.
    Pictures, the bottleneck, the player and collapsed tables follow.

    Raise InputError if the suffix is not ``.html`` or ``.htm``, the kind of the answer is unknown, or a picture is not
    a readable PNG, GIF or JPEG.

    >>> from tempfile import TemporaryDirectory
    >>> answer = {"kind": "prediction", "conclusions": ["Ring is faster."]}
    >>> with TemporaryDirectory() as folder:
    ...     write_report(answer, ReportParts(), Path(folder, "report.html"))
    ...     "<li>Ring is faster.</li>" in Path(folder, "report.html").read_text()
    True
    """
    path = check_file(path, "a report")
    write_text(path, render_report(answer, parts))


def render_report(answer: Mapping[str, Any], parts: ReportParts) -> str:
    """Return the report as HTML. Raise InputError if the kind of the answer is unknown or a picture is not readable."""
    content = _content(answer, parts.headline) | vars(parts)
    for name in ("pictures", "critical", "compared"):
        content[name] = [(caption, _as_data_uri(caption, picture)) for caption, picture in content[name].items()]
    environment = Environment(
        loader=PackageLoader("viz", ""),
        autoescape=True,
        finalize=_show,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("report.html.jinja").render(content)


def _show(value: object) -> object:
    """Escape characters that would reverse or hide the text after them. Return HTML and non-text values unchanged."""
    if not isinstance(value, str) or hasattr(value, "__html__"):
        return value
    return make_printable(value, keep=SPACES, most=len(value))


def _content(answer: object, headline: str) -> dict[str, Any]:
    if not isinstance(answer, Mapping):
        raise InputError(f"answer must be a dict from to_dict(), not {answer!r}")
    kind = answer.get("kind")
    if kind not in _KINDS:
        raise InputError(f"the key kind of answer must be one of {', '.join(_KINDS)}, not {kind!r}")
    heading, explanation = _KINDS[kind]  # a prediction has no subtitle: the machine has no effect on virtual time
    scenario, environment = answer.get("scenario") or {}, answer.get("environment") or {}
    cores = environment.get("cores")
    machine = [environment.get("cpu"), f"{cores} {'core' if cores == 1 else 'cores'}" if cores else None]
    machine += [f"{name} {environment[name]}" for name in ("python", "torch") if name in environment]
    return {
        "kind": kind,
        "title": scenario.get("title") or "Ringlab",
        "subtitle": "" if kind == "prediction" else "  ·  ".join(str(part) for part in machine if part),
        "heading": heading,
        "explanation": explanation,
        "question": _question(answer, scenario),
        "conclusions": [text for text in answer.get("conclusions") or [] if text != headline],
        "limits": answer.get("limits") or "",
        "origins": [("Scenario", list(_flatten(scenario))), ("Environment", list(_flatten(environment)))],
        "everything": json.dumps(answer, indent=2, ensure_ascii=False, default=str),
    }


def _question(answer: Mapping[str, Any], scenario: Mapping[str, Any]) -> str:
    where = f" on {scenario['cluster']}" if isinstance(scenario.get("cluster"), str) else ""
    names = list(dict.fromkeys(row.get("collective", "") for row in answer.get("collectives") or []))
    if answer.get("training"):
        return f"How long does a training step take{where}, and what limits it?"
    return f"How fast is {' and '.join(names)}{where}, and what limits it?" if names else ""


def _flatten(content: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield the dotted key, such as ``cluster.bandwidth``, and the text of each value. Nested dicts are flattened."""
    for key, value in content.items():
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _as_data_uri(caption: str, picture: bytes | Path) -> str:
    content = picture if isinstance(picture, bytes) else read_bytes(check_path("picture", picture))
    mime = next((mime for start, mime in _SIGNATURES.items() if content.startswith(start)), None)
    if mime is None:
        raise InputError(f"picture {caption!r} must be a PNG, GIF or JPEG")
    return f"data:{mime};base64,{b64encode(content).decode()}"
