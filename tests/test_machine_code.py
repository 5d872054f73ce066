"""``python -m simcomm.machine_code``: all that numba makes of the engine is made at once, and said."""

import ast
import importlib.util
import subprocess
import sys
from pathlib import Path

import numba
import pytest

from simcomm import machine_code
from simcomm.compiled.kernel import jit
from simcomm.compiled.kernel.jit import compiled_sources, source_hash
from simcomm.compiling import NOTE, tell_of_compiling
from simcomm.kept_code import KNOWN_INSIDE

SIMCOMM = Path(__file__).parent.parent / "simcomm"


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


def test_every_entry_to_the_machine_code_is_called():
    code = """if True:
        import gc
        from numba.core.dispatcher import Dispatcher
        from simcomm import machine_code, parallel
        parallel.cores = lambda: 1  # all of it in this process
        machine_code.main()
        made = [one for one in gc.get_objects() if isinstance(one, Dispatcher) and one.signatures]
        print(*{one.py_func.__name__ for one in made})
    """
    done = subprocess.run([sys.executable, "-c", code], cwd=SIMCOMM.parent, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert entries() <= {*done.stdout.split()}


@pytest.mark.skipif(numba.version_info.short not in KNOWN_INSIDE, reason="a release of numba not looked into")
def test_code_that_lies_on_disk_is_loaded_without_what_compiles() -> None:
    code = """if True:
        from numba.core.cpu import CPUContext
        from simcomm import machine_code, parallel
        parallel.cores = lambda: 1  # all of it in this process
        filled = []
        CPUContext.load_additional_registries, before = lambda context: (filled.append(1), before(context)), \\
            CPUContext.load_additional_registries
        machine_code.main()
        print(len(filled))
    """
    every = [sys.executable, "-m", "simcomm.machine_code"]
    subprocess.run(every, cwd=SIMCOMM.parent, check=True, capture_output=True, timeout=600)
    done = subprocess.run([sys.executable, "-c", code], cwd=SIMCOMM.parent, capture_output=True, text=True, timeout=600)
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "0\n")


def test_an_edit_compiles_only_what_it_may_have_changed() -> None:
    compiled = "simcomm.compiled"
    of = {
        name: {path.stem for path in compiled_sources(f"{compiled}.{name}")}
        for name in ("kernel.event_loop", "tcp.kernel")
    }
    assert {"event_loop", "flow_groups", "fair_levels", "heap", "same_time"} <= of["kernel.event_loop"]
    assert {"kernel", "records"} <= of["tcp.kernel"]
    assert "records" not in of["kernel.event_loop"] and "flow_groups" not in of["tcp.kernel"]
    numbers = {
        source_hash(f"{compiled}.{name}")
        for name in ("kernel.event_loop", "tcp.kernel", "kernel.halting", "kernel.jitter")
    }
    assert len(numbers) == 4


def test_of_a_release_that_was_not_looked_into_nothing_inside_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("simcomm.kept_code.KNOWN_INSIDE", set())
    found = importlib.util.spec_from_file_location("jit_of_another_release", jit.__file__)
    assert found is not None and found.loader is not None
    other = importlib.util.module_from_spec(found)
    found.loader.exec_module(other)
    assert "pipeline_class" not in other.PART
    part = other.separate(lambda number: number + 1)
    called = other.entry(lambda number: 2 * part(number))
    assert called(20) == 42


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
