"""Files that hold one dataclass as JSON, with a schema version: written whole, read strictly."""

import json
from dataclasses import asdict
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from collectives.errors import InputError
from collectives.records.files import write_text

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

SCHEMA_VERSION = 1
Record = TypeVar("Record", bound="DataclassInstance")


def write_record(path: Path, record: "DataclassInstance", indent: int | None = None) -> None:
    """Put a dataclass into ``path``, whole or not at all. JSON has no infinity, so that one becomes the text "inf"."""
    content = {"schema_version": SCHEMA_VERSION, **asdict(record)}
    try:
        text = json.dumps(content, indent=indent, allow_nan=False)
    except ValueError:
        text = json.dumps(_finite(content), indent=indent, allow_nan=False)
    write_text(path, text)


def read_record(path: Path, kind: type[Record], name: str) -> Record:
    """The dataclass in a file that ``write_record`` wrote.

    Raises InputError that names the file, the key and what is wrong; an unknown key is wrong too.
    """
    from pydantic import TypeAdapter, ValidationError  # slow to import, and only needed here

    content = _read_json(path, name)
    version = content.pop("schema_version", None) if isinstance(content, dict) else None
    if version != SCHEMA_VERSION:
        raise InputError(f"{path}: not a {name} of schema version {SCHEMA_VERSION} (found {version!r})")
    try:
        return TypeAdapter(kind).validate_python(content, extra="forbid")
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise InputError(f"{path}: not a {name}: {where}: {first['msg']}") from error


def _read_json(path: Path, name: str) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: not a {name}: it is not JSON ({error})") from error


def _finite(value: Any) -> Any:
    """The same with "inf" for infinity, which pydantic reads back as the float."""
    if isinstance(value, dict):
        return {key: _finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    return str(value) if isinstance(value, float) and not isfinite(value) else value
