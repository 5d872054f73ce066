"""How a command hands over its answer: as JSON where it was asked for, and shown to the reader."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console

from ringlab.terminal.progress import is_first_rank

if TYPE_CHECKING:
    from scenarios import Scenario


def give(answer: dict[str, Any], json_to: str | None, show: Callable[[Console], None]) -> None:
    """Write the answer where it was asked for; only rank 0 speaks."""
    if not is_first_rank():
        return
    text = json.dumps(answer, indent=2, allow_nan=False)
    if json_to == "-":
        typer.echo(text)
        return
    if json_to is not None:
        from collectives.records.files import write_text

        write_text(Path(json_to), text + "\n")
    show(Console(highlight=False))


def finish(answer: dict[str, Any], scenario: "Scenario", json_to: str | None) -> None:
    """Draw the conclusions of an answer about a scenario, and give it as ``give`` does."""
    from ringlab.answers.conclusions import conclude
    from ringlab.terminal.tables import show

    answer["conclusions"] = conclude(answer, scenario)
    give(answer, json_to, lambda console: show(answer, console))
