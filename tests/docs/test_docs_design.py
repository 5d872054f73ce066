"""The table of packages in DESIGN.md lists every folder, above the folders that it imports."""

import re
from itertools import combinations

from command_line import ROOT
from test_imports import MAY_IMPORT, imports

PAGE = (ROOT / "DESIGN.md").read_text(encoding="utf-8")


def mapped_folders() -> list[str]:
    """Return the folders of the table, from the top down."""
    packages = PAGE[PAGE.index("## Packages") : PAGE.index("## Virtual time")]
    cells = [line.split("|")[1] for line in packages.splitlines() if line.startswith("|")]
    return [folder for cell in cells for folder in re.findall(r"`([\w/]+)/`", cell)]


def imported_folders(folder: str) -> set[str]:
    """Return the folders of the modules that a folder's modules import, except for type annotations only."""
    names = {name for path in (ROOT / folder).glob("*.py") for name in imports(path)}
    return {name.rpartition(".")[0].rpartition(".")[0].replace(".", "/") for name in names}


def test_design_lists_every_folder() -> None:
    folders = {
        path.parent.relative_to(ROOT).as_posix() for name in MAY_IMPORT for path in (ROOT / name).rglob("__init__.py")
    }
    assert sorted(mapped_folders()) == sorted(folders)


def test_folder_imports_no_folder_above_it() -> None:
    inner = [folder for folder in mapped_folders() if "/" in folder]
    assert not [(below, above) for above, below in combinations(inner, 2) if above in imported_folders(below)]
