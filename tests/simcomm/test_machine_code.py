"""``python -m simcomm.machine_code``: all that numba makes of the engine is made at once, and said."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import numba
import pytest
from command_line import run_python

from simcomm import machine_code
from simcomm.compiling import NOTE, tell_of_compiling
from simcomm.jit import LOADED_AT_ONCE, source_hash

SIMCOMM = Path(__file__).parents[2] / "simcomm"


def entries() -> set[str]:
    """The names of the functions that Python calls in machine code, as the sources have them."""
    found = set[str]()
    for path in SIMCOMM.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef) and any(ast.unparse(one) == "entry" for one in node.decorator_list):
                found.add(node.name)
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "compile_and_cache" and path.stem != "jit":
                found.add(ast.unparse(node.args[0]))
    return found


@pytest.fixture(scope="module")
def made_again() -> tuple[set[str], int]:
    """What is in machine code in a process that finds all of it on disk, and how often that loads what compiles."""
    code = """if True:
        import gc
        from numba.core.cpu import CPUContext
        from numba.core.dispatcher import Dispatcher
        from simcomm import machine_code, parallel
        parallel.cores = lambda: 1  # all of it in this process
        filled = []
        CPUContext.load_additional_registries, before = lambda context: (filled.append(1), before(context)), \\
            CPUContext.load_additional_registries
        machine_code.main()
        made = [one for one in gc.get_objects() if isinstance(one, Dispatcher) and one.signatures]
        print(len(filled), *{one.py_func.__name__ for one in made})
    """
    assert run_python("-m", "simcomm.machine_code").returncode == 0
    done = run_python("-c", code)
    assert (done.returncode, done.stderr) == (0, "")
    filled, *names = done.stdout.split()
    return {*names}, int(filled)


def test_every_entry_to_the_machine_code_is_called(made_again: tuple[set[str], int]) -> None:
    assert entries() <= made_again[0]


@pytest.mark.skipif(numba.version_info.short != LOADED_AT_ONCE, reason="a release of numba not looked into")
def test_code_that_lies_on_disk_is_loaded_without_what_compiles(made_again: tuple[set[str], int]) -> None:
    assert made_again[1] == 0


def test_an_edit_changes_the_hash_that_kept_code_goes_by(tmp_path: Path) -> None:
    file = tmp_path / "one.py"
    numbers = set()
    for text in ("a", "b"):
        file.write_text(text)
        source_hash.cache_clear()
        numbers.add(source_hash(str(file)))
    assert len(numbers) == 2


PROGRAM = """
from simcomm.jit import compile_and_cache
from simcomm.compiling import told_of_compiling

def double(number):
    return 2 * number

with told_of_compiling(lambda note: print("compiles")):
    print(compile_and_cache(double)(21))
"""


def run_program(folder: Path) -> list[str]:
    """What a program of its own prints that needs the code, which lies in a cache folder of its own."""
    environment = os.environ | {"PYTHONPATH": str(SIMCOMM.parent), "XDG_CACHE_HOME": str(folder / "cache")}
    environment.pop("NUMBA_CACHE_DIR", None)
    done = subprocess.run(
        [sys.executable, "program.py"], cwd=folder, env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.mark.skipif(numba.version_info.short != LOADED_AT_ONCE, reason="a release of numba not looked into")
@pytest.mark.slow  # seven processes, three of which compile
def test_code_that_cannot_be_read_is_compiled_again(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    assert (run_program(tmp_path), run_program(tmp_path)) == (["compiles", "42"], ["42"])
    for ending, damage in (("nbi", b""), ("nbc", b"other bytes")):  # the index, and the code
        [file] = (tmp_path / "cache" / "ringlab" / "machine-code").rglob(f"*.{ending}")
        file.write_bytes(damage)
        assert (run_program(tmp_path), run_program(tmp_path)) == (["compiles", "42"], ["42"]), ending


def test_what_is_compiled_is_told_with_its_seconds_and_nothing_else(monkeypatch, capsys):
    monkeypatch.setattr("simcomm.parallel.cores", lambda: 1)  # other processes would know the real uses only
    monkeypatch.setattr(machine_code, "USES", {"first": lambda: None, "second": tell_of_compiling})
    machine_code.main()
    said = capsys.readouterr()
    first, second, last = said.err.splitlines()
    assert (first, said.out) == (NOTE, "")
    assert second.startswith("  second: ") and last.startswith("  done in ")
    monkeypatch.setattr(machine_code, "USES", {"first": lambda: None})
    machine_code.main()
    assert capsys.readouterr() == ("", "")
