"""The tables of ``list``."""

from dataclasses import fields

from rich.console import Console

from ringlab.answers.names import Names
from ringlab.table import make_table


def show_names(answer: Names, console: Console) -> None:
    """Print algorithms, presets, models and scenarios with a line about each."""
    for part in fields(answer):
        rows = [[name.name, name.about] for name in getattr(answer, part.name)]
        console.print(make_table(part.name.capitalize(), ["name", "about"], rows, words=2))
    console.print("Use them as `ringlab check NAME`, `ringlab profile NAME` and `ringlab predict NAME`.")
