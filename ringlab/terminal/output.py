"""How a command hands over its answer: as JSON where it was asked for, and shown to the reader."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import typer
from rich.console import Console

from ringlab.terminal.progress import is_first_rank

if TYPE_CHECKING:
    from ringlab.answers.record import Record

A = TypeVar("A", bound="Record")


def write_answer(answer: A, json_to: str | None, show: Callable[[A, Console], None]) -> None:
    """Write the answer as JSON to a file or, for ``-``, to standard output; show it unless it went there.

    Of several ranks only rank 0 writes.
    """
    if not is_first_rank():
        return
    write_json(answer, json_to)
    if json_to != "-":
        show(answer, Console(highlight=False))


def write_json(answer: "Record", json_to: str | None) -> None:
    """Write the answer as JSON to a file or, for ``-``, to standard output."""
    if json_to is None:
        return
    text = json.dumps(answer.to_dict(), indent=2, allow_nan=False)
    if json_to == "-":
        typer.echo(text)
    else:
        from collectives.records.files import write_text

        write_text(Path(json_to), text + "\n")
