"""The tour names existing modules and functions. Each table is short and never returns to a folder."""

import ast
import re
from itertools import groupby
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "contribute" / "tour.md").read_text(encoding="utf-8")
Journey = list[tuple[str, list[str]]]  # module and functions


def read_journeys() -> list[Journey]:
    """Return each table of the page; a row ``1 to 3`` repeats rows of the previous table."""
    journeys: list[Journey] = []
    for is_table, lines in groupby(PAGE.splitlines(), key=lambda line: line.startswith("|")):
        if is_table:
            journey: Journey = []
            for number, module, functions, _ in ([c.strip() for c in line.split("|")[1:-1]] for line in [*lines][2:]):
                if shared := re.fullmatch(r"1 to (\d+)", number):
                    journey += journeys[-1][: int(shared[1])]
                else:
                    assert int(number) == len(journey) + 1
                    journey.append((module.strip("`"), re.findall(r"`([\w.]+)`", functions)))
            journeys.append(journey)
    return journeys


JOURNEYS = read_journeys()


def names_in(path: Path) -> set[str]:
    names, kinds = set[str](), ast.FunctionDef | ast.ClassDef
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, kinds):
            names |= {node.name, *(f"{node.name}.{each.name}" for each in node.body if isinstance(each, kinds))}
    return names


@pytest.mark.parametrize("journey", JOURNEYS, ids=lambda journey: journey[-1][0])
def test_code_tour_visits_each_folder_once_in_at_most_8_modules(journey: Journey) -> None:
    assert 4 <= len(journey) <= 8
    for module, functions in journey:
        assert functions and set(functions) <= names_in(ROOT / module), module
    folders = [folder for folder, _ in groupby(Path(module).parent for module, _ in journey)]
    assert len(set(folders)) == len(folders)
    assert len({module for module, _ in journey}) == len(journey)
