"""The example notebook, and how notebooks show answers, pictures and errors."""

import ast
import json
from pathlib import Path
from typing import Any

import pytest

import ringlab
from collectives.errors import InputError
from scenarios.toml_files import find_beginning


def run_cell(source: str, names: dict[str, Any]) -> Any:
    """Execute a cell, and return the value of its last line as a notebook does."""
    tree = ast.parse(source)
    end = tree.body[-1]
    last = ast.Expression(end.value) if isinstance(end, ast.Expr) else None
    tree.body = tree.body[: -1 if last else None]
    exec(compile(tree, "cell", "exec"), names)
    return eval(compile(last, "cell", "eval"), names) if last else None


def test_notebook_runs_and_shows_its_answers(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    cells = json.loads(find_beginning("notebook")[0].read_text())["cells"]
    names: dict[str, Any] = {}
    answer, times, player, path, _ = (
        run_cell("".join(cell["source"]), names) for cell in cells if cell["cell_type"] == "code"
    )
    assert answer._repr_html_().count("<table>") == 2 and times["ring"] < times["naive"]
    assert player._repr_html_().startswith('<iframe srcdoc="&lt;!doctype html&gt;')
    assert path._repr_html_().startswith('<img src="data:image/png;base64,')
    assert (path._repr_png_() or b"").startswith(b"\x89PNG") and player._repr_png_() is None
    assert capsys.readouterr().out.startswith("star9: no such file")


def test_notebook_shows_an_input_error_in_one_line() -> None:
    with pytest.raises(InputError) as problem:
        ringlab.load("star9")
    (line,) = problem.value._render_traceback_()
    assert line.startswith("InputError: star9: no such file")
