"""Base classes of the results of commands, which convert to plain JSON and to tables and lines for the terminal."""

from collections.abc import Iterator, Mapping
from dataclasses import Field, fields, is_dataclass
from typing import Any, ClassVar

from ringlab.table import Part, render_html

SCHEMA_VERSION = 2  # of every answer's JSON; raised when a key changes
NOT_IN_JSON = {"json": False}  # metadata of a field that the JSON leaves out


class AnswerRecord:
    """Base class of the records in a command's result. It converts them to plain JSON."""

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as plain JSON, without fields whose value and default are None."""
        return _fields(self)


class Answer(AnswerRecord):
    """Base class of command results. ``kind`` is the result's type in JSON, and ``show`` yields the printed parts."""

    kind: ClassVar[str]
    interrupted: bool = False  # whether results are missing because the command was interrupted

    def to_dict(self) -> dict[str, Any]:
        stopped = {"interrupted": True} if self.interrupted else {}
        return {"schema_version": SCHEMA_VERSION, "kind": self.kind, **super().to_dict(), **stopped}

    def __repr__(self) -> str:
        """Return the result's type, its title, and the number of rows in each table that is not empty."""
        answer: Any = self
        values = {field.name: getattr(answer, field.name) for field in fields(answer)}
        parts = [
            f"{len(rows)} {name.replace('_', ' ')}"
            for name, rows in values.items()
            if isinstance(rows, tuple) and rows and not isinstance(rows[0], str)
        ]
        parts += ["interrupted"] * self.interrupted
        title = f" of {answer.title!r}" if "title" in values else ""
        return f"<{type(self).__name__}{title}{': ' * bool(parts)}{', '.join(parts)}>"

    def show(self) -> Iterator[Part]:
        """Yield the tables and lines from top to bottom."""
        raise NotImplementedError

    def _repr_html_(self) -> str:
        return render_html(self.show())


def to_plain(value: Any) -> Any:
    """Return ``value`` as JSON types: dataclasses, named tuples and mappings as dicts, sequences as lists."""
    if hasattr(value, "to_dict"):
        return value.to_dict()
    if is_dataclass(value):
        return _fields(value)
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        value = value._asdict()
    if isinstance(value, Mapping):
        return {key: to_plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(each) for each in value]
    return value


def _fields(record: Any) -> dict[str, Any]:
    shown: list[Field[Any]] = [field for field in fields(record) if field.metadata.get("json", True)]
    values = {
        field.name: (getattr(record, field.name), field.default) for field in shown if field.name != "interrupted"
    }
    return {name: to_plain(value) for name, (value, default) in values.items() if not value is default is None}


def shorten(value: Any) -> Any:
    """Round the floats in JSON data to seven significant digits, which is more than any measurement has.

    >>> shorten({"time_s": 0.012345678912, "bytes": 123456789})
    {'time_s': 0.01234568, 'bytes': 123456789}
    """
    if isinstance(value, dict):
        return {key: shorten(each) for key, each in value.items()}
    if isinstance(value, list):
        return [shorten(each) for each in value]
    return float(f"{value:.7g}") if isinstance(value, float) else value
