"""Write the generated parts of pages: ``python docs/page_writer.py [PAGE ...]``. Default: all pages.

A part lies between two marks with its name. Its function is in ``PARTS`` of a module ``*_table.py`` of this folder.
"""

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from collectives.output_files import write_text

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results"
Parts = Mapping[str, Mapping[str, Callable[[], str]]]  # by page and mark


@cache
def read_results(name: str) -> Any:
    """Return the last results of a benchmark, by the name of their file without ``.json``."""
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))


def table(heads: str, rows: Iterable[Sequence[object]]) -> str:
    """Return a table. Columns whose head ends in a colon are aligned right.

    >>> print(table("name | time:", [["ring", 3]]), end="")
    | name | time |
    | --- | ---: |
    | ring | 3 |
    """
    names = [head.strip() for head in heads.split("|")]
    rule = ["---:" if name.endswith(":") else "---" for name in names]
    lines = [[name.removesuffix(":") for name in names], rule, *rows]
    return "".join(f"| {' | '.join(map(str, line))} |\n" for line in lines)


def dated(results: Any, text: str) -> str:
    """Return a part of a page below the date of its results.

    >>> dated({"environment": {"date": "2026-11-29"}}, "| ring | 3 |\\n")
    '2026-11-29:\\n\\n| ring | 3 |\\n'
    """
    return f"{results['environment']['date']}:\n\n{text}"


def write_between(page: str, name: str, text: str) -> str:
    """Return the page with ``text``, of whole lines, between the marks of that name.

    Raise ValueError if the page has no such marks.

    >>> write_between("<!-- a: begin -->\\nold\\n<!-- a: end -->\\n", "a", "new\\n")
    '<!-- a: begin -->\\nnew\\n<!-- a: end -->\\n'
    """
    begin, end = f"<!-- {name}: begin -->\n", f"<!-- {name}: end -->"
    before, begun, rest = page.partition(begin)
    _, ended, after = rest.partition(end)
    if not (begun and ended):
        raise ValueError(f"the page has no marks of {name}")
    return f"{before}{begin}{text}{end}{after}"


def all_parts() -> dict[str, dict[str, Callable[[], str]]]:
    """Return the parts of every page, by its path in the project."""
    parts_by_page: dict[str, dict[str, Callable[[], str]]] = {}
    for path in sorted(Path(__file__).parent.glob("*_table.py")):
        for page, parts in import_module(path.stem).PARTS.items():
            parts_by_page.setdefault(page, {}).update(parts)
    return parts_by_page


def written(page: str) -> str:
    """Return a page with its parts written anew."""
    text = (ROOT / page).read_text(encoding="utf-8")
    for name, make in all_parts()[page].items():
        text = write_between(text, name, make())
    return text


if __name__ == "__main__":
    for each in sys.argv[1:] or all_parts():
        write_text(ROOT / each, written(each))
