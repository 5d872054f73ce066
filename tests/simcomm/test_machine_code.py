"""``python -m simcomm.machine_code`` compiles all machine code of the engine at once."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import numba
import pytest
from command_line import run_python

from simcomm import machine_code
from simcomm.compiling import report_compilation
from simcomm.jit import LOADED_AT_ONCE, source_hash

SIMCOMM = Path(__file__).parents[2] / "simcomm"


def entries() -> set[str]:
    """Return the names of the compiled functions that Python calls, from the sources."""
    names = set[str]()
    for path in SIMCOMM.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef) and any(ast.unparse(each) == "entry" for each in node.decorator_list):
                names.add(node.name)
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "compile_and_cache" and path.stem != "jit":
                names.add(ast.unparse(node.args[0]))
    return names


@pytest.mark.slow  # three processes
def test_compiled_functions_load_without_the_compiler() -> None:
    code = """if True:
        import gc
        from numba.core.cpu import CPUContext
        from numba.core.dispatcher import Dispatcher
        from simcomm import machine_code, parallel
        parallel.cores = lambda: 1  # everything in this process
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
    compilers, *names = done.stdout.split()
    assert entries() <= {*names}
    assert compilers == "0" or numba.version_info.short != LOADED_AT_ONCE


def test_source_hash_changes_when_the_file_changes(tmp_path: Path) -> None:
    file, numbers = tmp_path / "one.py", set()
    for text in ("a", "b"):
        file.write_text(text)
        source_hash.cache_clear()
        numbers.add(source_hash(str(file)))
    assert len(numbers) == 2


PROGRAM = """
from simcomm.jit import compile_and_cache
from simcomm.compiling import reporting_compilation

def double(number):
    return 2 * number

with reporting_compilation(lambda note: print("compiles")):
    print(compile_and_cache(double)(21))
"""


def run_program(folder: Path) -> list[str]:
    """Run a program that compiles a function, with its own cache folder. Return its output."""
    environment = os.environ | {"PYTHONPATH": str(SIMCOMM.parent), "XDG_CACHE_HOME": str(folder / "cache")}
    environment.pop("NUMBA_CACHE_DIR", None)
    done = subprocess.run(
        [sys.executable, "program.py"], cwd=folder, env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.mark.skipif(numba.version_info.short != LOADED_AT_ONCE, reason="an untested release of numba")
@pytest.mark.slow  # seven processes, three of which compile
def test_damaged_machine_code_is_compiled_again(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    assert (run_program(tmp_path), run_program(tmp_path)) == (["compiles", "42"], ["42"])
    for ending, damage in (("nbi", b""), ("nbc", b"other bytes")):  # the index, and the code
        [file] = (tmp_path / "cache" / "ringlab" / "machine-code").rglob(f"*.{ending}")
        file.write_bytes(damage)
        assert (run_program(tmp_path), run_program(tmp_path)) == (["compiles", "42"], ["42"]), ending


def test_machine_code_command_prints_only_after_a_compilation(monkeypatch, capsys):
    monkeypatch.setattr("simcomm.parallel.cores", lambda: 1)  # other processes would not see these uses
    for uses, begin in (((report_compilation,), "compiled the simulator's machine code in "), ((lambda: None,), "")):
        monkeypatch.setattr(machine_code, "USES", uses)
        machine_code.main()
        out, err = capsys.readouterr()
        assert out == "" and (err.startswith(begin) if begin else err == "")
