"""The table of packages in DESIGN.md lists every folder, above the folders that it imports."""

import ast
import re
from functools import cache
from itertools import combinations

from command_line import ROOT
from test_imports import MAY_IMPORT

PAGE = (ROOT / "DESIGN.md").read_text(encoding="utf-8")


def mapped_folders() -> list[str]:
    """Return the folders of the table, from the top down."""
    packages = PAGE[PAGE.index("## Packages") : PAGE.index("## Virtual time")]
    cells = [line.split("|")[1] for line in packages.splitlines() if line.startswith("|")]
    return [folder for cell in cells for folder in re.findall(r"`([\w/]+)/`", cell)]


@cache
def imported_folders(folder: str) -> set[str]:
    """Return the folders that a folder's modules import, except for type annotations only."""
    folders = set()
    for path in (ROOT / folder).glob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        typing_only = {
            inner
            for node in ast.walk(tree)
            if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
            for inner in node.body
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module and node not in typing_only:
                folders.add(node.module.rpartition(".")[0].replace(".", "/"))
    return folders


def test_design_lists_every_folder() -> None:
    folders = {
        path.parent.relative_to(ROOT).as_posix() for name in MAY_IMPORT for path in (ROOT / name).rglob("__init__.py")
    }
    assert sorted(mapped_folders()) == sorted(folders)


def test_folder_imports_none_above_it() -> None:
    inner = [folder for folder in mapped_folders() if "/" in folder]
    assert not [(below, above) for above, below in combinations(inner, 2) if above in imported_folders(below)]
