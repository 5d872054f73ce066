"""Read and write records as JSON files, with strict validation.

A record is a dataclass with a ``SCHEMA_VERSION``, which its file stores before the fields. A file is rejected if it has
another version, an unknown key or a value of the wrong type.
"""

import json
from dataclasses import asdict
from math import isfinite
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeVar

from collectives.checks import check_path
from collectives.errors import InputError
from collectives.input_files import FileBytes, parse_json, read_text
from collectives.output_files import write_text
from collectives.quoting import quote
from collectives.removed import RENAMED_FIELDS, rename_keys


class VersionedRecord(Protocol):
    """A dataclass with a schema version. The version increases when files of earlier versions can no longer be read."""

    SCHEMA_VERSION: ClassVar[int]
    __dataclass_fields__: ClassVar[dict[str, Any]]


AnyRecord = TypeVar("AnyRecord", bound=VersionedRecord)


def write_record(path: Path | str, record: VersionedRecord, indent: int | None = None, durable: bool = False) -> None:
    """Write a record to ``path`` as JSON, atomically. Infinity is written as the string "inf".

    If ``durable`` is True, the file is on disk when the function returns.
    """
    write_content(path, {"schema_version": record.SCHEMA_VERSION, **asdict(record)}, indent, durable)


def write_content(path: Path | str, content: dict[str, Any], indent: int | None = None, durable: bool = False) -> None:
    """Write ``content`` to ``path`` in the same way as ``write_record``. It must include the schema version."""
    path = check_path("path", path)
    try:
        text = json.dumps(content, indent=indent, allow_nan=False)
    except ValueError:
        text = json.dumps(_without_infinity(content), indent=indent, allow_nan=False)
    write_text(path, text, durable)


def read_record(path: Path | str, kind: type[AnyRecord], most_bytes: int = FileBytes.USUAL) -> AnyRecord:
    """Read a record of type ``kind`` from a file that ``write_record`` wrote.

    Raise InputError if the schema version differs, or if a key is unknown, missing or has an invalid value.
    """
    path, name = check_path("path", path), kind.__name__.lower()
    content = _read_json(path, name, most_bytes)
    version = content.pop("schema_version", None) if isinstance(content, dict) else None
    if version != kind.SCHEMA_VERSION:
        advice = "; another version of Ringlab wrote it: make it again" if isinstance(version, int) else ""
        expected = kind.SCHEMA_VERSION
        raise InputError(f"{path}: not a {name} of schema version {expected} (found {quote(version)}){advice}")
    rename_keys({name: content}, RENAMED_FIELDS, str(path))
    return parse_record(content, kind, path)


def parse_record(content: dict[str, Any], kind: type[AnyRecord], path: Path) -> AnyRecord:
    """Return JSON content as a record of type ``kind``. Raise InputError if a field is unknown, missing or invalid.

    ``content`` is the content of the file ``path`` without its schema version.
    """
    from pydantic import TypeAdapter, ValidationError  # slow to import; only needed here

    try:
        return TypeAdapter(kind).validate_python(content, extra="forbid")
    except ValidationError as error:
        first = error.errors()[0]
        name, key, problem = kind.__name__.lower(), ".".join(map(str, first["loc"])), first["msg"]
        raise InputError(f"{path}: not a {name}: {key}: {problem}") from error


def _read_json(path: Path, name: str, most_bytes: int) -> Any:
    text = read_text(path, most_bytes)
    try:
        return parse_json(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: not a {name}: it is not JSON ({error})") from error


def _without_infinity(value: Any) -> Any:
    """Return a copy in which floats that are not finite are strings, such as "inf", which pydantic reads as floats."""
    if isinstance(value, dict):
        return {key: _without_infinity(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_without_infinity(inner) for inner in value]
    return str(value) if isinstance(value, float) and not isfinite(value) else value
