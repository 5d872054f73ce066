"""The tour names modules and functions that are there, and each way is short and never goes back."""

import ast
import re
from itertools import groupby
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "tour.md").read_text(encoding="utf-8")
Way = list[tuple[str, list[str]]]  # module and functions


def read_ways() -> list[Way]:
    """Return each table of the page; a row ``1 to 3`` stands for those of the table before."""
    found: list[Way] = []
    for is_table, lines in groupby(PAGE.splitlines(), key=lambda line: line.startswith("|")):
        if is_table:
            way: Way = []
            for number, module, functions, _ in ([c.strip() for c in line.split("|")[1:-1]] for line in [*lines][2:]):
                if shared := re.fullmatch(r"1 to (\d+)", number):
                    way += found[-1][: int(shared[1])]
                else:
                    assert int(number) == len(way) + 1
                    way.append((module.strip("`"), re.findall(r"`([\w.]+)`", functions)))
            found.append(way)
    return found


WAYS = read_ways()


def names_in(path: Path) -> set[str]:
    """Return the functions and classes of a module, and ``Class.method``."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    methods = {
        f"{name}.{child.name}"
        for name, node in found.items()
        for child in node.body
        if isinstance(child, ast.FunctionDef)
    }
    return found.keys() | methods


def test_there_are_all_ways() -> None:
    assert [len(way) for way in WAYS] == [6, 8, 8, 8, 8, 4, 5]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way[-1][0])
def test_a_way_is_short_and_every_name_on_it_is_there(way: Way) -> None:
    assert len(way) <= 8
    for module, functions in way:
        assert functions
        assert set(functions) <= names_in(ROOT / module), module


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way[-1][0])
def test_a_way_never_comes_back_to_a_folder_that_it_has_left(way: Way) -> None:
    folders = [folder for folder, _ in groupby(Path(module).parent for module, _ in way)]
    assert len(set(folders)) == len(folders)
    assert len({module for module, _ in way}) == len(way)
