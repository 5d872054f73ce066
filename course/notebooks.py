"""Convert a notebook's cells to a script, and lines of the script back to lines of cells."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from collectives.errors import InputError
from course.judging import JudgedExercise

NOTEBOOK = ".ipynb"


class Script(NamedTuple):
    """A learner's file as a script. For a notebook, ``cells`` maps each line to a cell and a line in the cell."""

    path: Path
    cells: tuple[tuple[int, int], ...] = ()

    def locate(self, judged: JudgedExercise) -> JudgedExercise:
        """Return an exercise's result with its script line converted to a notebook cell and a line in the cell."""
        if not 0 < judged.line <= len(self.cells):
            return judged
        cell, line = self.cells[judged.line - 1]
        return replace(judged, line=line, cell=cell)


@contextmanager
def opened(path: Path) -> Iterator[Script]:
    """Yield a learner's file as a script: the file itself, or a temporary file with the code cells of a notebook.

    Raises InputError for a notebook that cannot be read.
    """
    if path.suffix != NOTEBOOK:
        yield Script(path)
        return
    text, cells = read_notebook(path)
    with TemporaryDirectory(prefix="ringlab-notebook-") as folder:
        script = Path(folder, path.stem + ".py")
        script.write_text(text, encoding="utf-8")
        yield Script(script, cells)


def read_notebook(path: Path) -> tuple[str, tuple[tuple[int, int], ...]]:
    """Return a notebook's code cells as a script, and each line's cell. Raise InputError for an invalid notebook.

    IPython commands, such as ``%matplotlib inline`` and ``!pip install``, become comments.
    """
    try:
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        sources = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        reason = f"cannot be read as a notebook ({type(error).__name__})"
        raise InputError(f"{path}: {reason}; save it in Jupyter") from error
    lines, places = list[str](), list[tuple[int, int]]()
    for number, source in enumerate(sources, 1):
        is_magic = source.startswith("%%")
        for place, line in enumerate(source.splitlines(), 1):
            lines.append(f"# {line}" if is_magic or line.lstrip().startswith(("%", "!")) else line)
            places.append((number, place))
        lines.append("")
        places.append((number, source.count("\n") + 1))
    return "\n".join(lines), tuple(places)
