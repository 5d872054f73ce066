"""Check the pages: lines of at most 120 characters, working links, and existing names of code.

`make lint` runs it. A name of code is a path in backquotes (`simcomm/cluster/`) or a name of a package (`simcomm.run`).
"""

import re
import sys
import tomllib
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PACKAGES = tuple(PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"])
FOLDERS = (*PACKAGES, "docs", "examples", "tests", "benchmarks")
WIDTH = 120

FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
CODE = re.compile(r"`([^`\n]+)`")
PATH = re.compile(rf"(?:{'|'.join(FOLDERS)})/[\w./*-]*")
NAME = re.compile(rf"(?:{'|'.join(PACKAGES)})(?:\.\w+)+")


def pages(root: Path = ROOT) -> list[Path]:
    """Return the pages at the root and in docs."""
    return [*sorted(root.glob("*.md")), *sorted((root / "docs").rglob("*.md"))]


def problems(page: Path, root: Path = ROOT) -> Iterator[str]:
    """Yield the problems of a page, each with file and line."""
    text = page.read_text(encoding="utf-8")
    prose = FENCED.sub(lambda block: "\n" * block[0].count("\n"), text)  # the lines keep their numbers
    for number, line in enumerate(prose.splitlines(), start=1):
        where = f"{page.relative_to(root)}:{number}"
        if len(line) > WIDTH and not line.startswith(("|", "    ")):
            yield f"{where}: {len(line)} characters, {WIDTH} at most"
        for target in LINK.findall(line):
            if not _leads_somewhere(page, target):
                yield f"{where}: broken link {target}"
        for code in CODE.findall(line):
            if PATH.fullmatch(code) and not _is_path(code, root):
                yield f"{where}: {code} does not exist"
            if NAME.fullmatch(code) and not _is_name(code):
                yield f"{where}: {code} does not exist"


def _leads_somewhere(page: Path, target: str) -> bool:
    if re.match(r"https?:", target):
        return True
    file, _, heading = target.partition("#")
    path = page.parent / file if file else page
    return path.exists() and (not heading or heading in _headings(path))


def _headings(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", FENCED.sub("", page.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def _is_path(code: str, root: Path) -> bool:
    return any(root.glob(code.rstrip("/")))


def _is_name(code: str) -> bool:
    parts = code.split(".")
    for length in range(len(parts), 0, -1):
        try:
            value: object = import_module(".".join(parts[:length]))
        except ModuleNotFoundError as error:
            if error.name is None or not code.startswith(error.name):
                raise
            continue
        for part in parts[length:]:
            if not hasattr(value, part):
                return part in getattr(value, "__dataclass_fields__", {})
            value = getattr(value, part)
        return True
    return False


def main() -> int:
    """Print every problem of every page; return the exit status."""
    messages = [problem for page in pages() for problem in problems(page)]
    for problem in messages:
        print(problem)
    return 1 if messages else 0


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    sys.exit(main())
