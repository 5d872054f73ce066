"""What all answers are: dataclasses that turn into plain JSON, and into tables and lines for a reader."""

from collections.abc import Iterator, Mapping
from dataclasses import Field, fields, is_dataclass
from typing import Any, ClassVar

from collectives.errors import InputError
from collectives.quoting import quote, suggest
from ringlab.table import Part, render_html

SCHEMA_VERSION = 2  # of every answer's JSON; raised when a key changes
NOT_IN_JSON = {"json": False}  # the metadata of a field that is no part of the JSON


class AnswerRecord:
    """Base of the dataclasses that answers are made of."""

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as plain JSON; a field whose default is None is left out while it is None."""
        return _fields(self)


class Answer(AnswerRecord):
    """What a command found: its JSON names its kind, and ``show`` says what a reader sees."""

    kind: ClassVar[str]
    interrupted: bool = False  # whether something is missing, as the command was interrupted

    def to_dict(self) -> dict[str, Any]:
        """Return what the command writes as JSON."""
        stopped = {"interrupted": True} if self.interrupted else {}
        return {"schema_version": SCHEMA_VERSION, "kind": self.kind, **super().to_dict(), **stopped}

    def __repr__(self) -> str:
        """Return the title, and how many there are of what was found."""
        own: Any = self
        tuples = {name: found for one in fields(own) if isinstance(found := getattr(own, name := one.name), tuple)}
        said = [
            f"{len(found)} {name.replace('_', ' ')}"
            for name, found in tuples.items()
            if found and not isinstance(found[0], str)
        ]
        said += ["interrupted"] * self.interrupted
        title = f" of {own.title!r}" if hasattr(own, "title") else ""
        return f"<{type(self).__name__}{title}{': ' * bool(said)}{', '.join(said)}>"

    def show(self) -> Iterator[Part]:
        """Yield the tables and lines that a reader sees, from top to bottom."""
        raise NotImplementedError

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        return render_html(self.show())

    def to_pandas(self, table: str | None = None) -> Any:
        """Return a list of ``to_dict`` as a DataFrame: the first with rows, or the one called ``table``.

        Raises InputError for a name that is not there, and where pandas is not installed.
        """
        lists = {
            key: rows
            for key, rows in self.to_dict().items()
            if isinstance(rows, list) and rows and isinstance(rows[0], dict)
        }
        if table is not None and table not in lists:
            raise InputError(f"unknown table {quote(table)}; {suggest(table, lists)}")
        if not lists:
            raise InputError("this answer has no table")
        try:
            from pandas import json_normalize  # slow to import, and no part of what Ringlab needs
        except ModuleNotFoundError as error:
            raise InputError("to_pandas requires pandas: pip install pandas") from error
        return json_normalize(lists[table or next(iter(lists))])


def to_plain(value: Any) -> Any:
    """Return ``value`` as what JSON knows: dataclasses, named tuples and mappings as dicts, sequences as lists."""
    if hasattr(value, "to_dict"):
        return value.to_dict()
    if is_dataclass(value):
        return _fields(value)
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        value = value._asdict()
    if isinstance(value, Mapping):
        return {key: to_plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(one) for one in value]
    return value


def _fields(record: Any) -> dict[str, Any]:
    shown: list[Field[Any]] = [one for one in fields(record) if one.metadata.get("json", True)]
    found = {one.name: (getattr(record, one.name), one.default) for one in shown if one.name != "interrupted"}
    return {name: to_plain(value) for name, (value, default) in found.items() if not value is default is None}


def shorten(value: Any) -> Any:
    """Return plain JSON with seven significant digits of each number that is no whole one: no measurement has more.

    >>> shorten({"time_s": 0.012345678912, "bytes": 123456789})
    {'time_s': 0.01234568, 'bytes': 123456789}
    """
    if isinstance(value, dict):
        return {key: shorten(one) for key, one in value.items()}
    if isinstance(value, list):
        return [shorten(one) for one in value]
    return float(f"{value:.7g}") if isinstance(value, float) else value
