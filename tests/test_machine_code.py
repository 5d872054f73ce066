"""``python -m simcomm.machine_code``: all that numba makes of the engine is made at once, and said."""

import ast
import subprocess
import sys
from pathlib import Path

from simcomm import machine_code
from simcomm.compiling import NOTE, tell_of_compiling

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
        from simcomm import machine_code
        machine_code.main()
        made = [one for one in gc.get_objects() if isinstance(one, Dispatcher) and one.signatures]
        print(*{one.py_func.__name__ for one in made})
    """
    done = subprocess.run([sys.executable, "-c", code], cwd=SIMCOMM.parent, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert entries() | {"_measure", "_descend"} <= {*done.stdout.split()}


def test_what_is_compiled_is_told_with_its_seconds_and_nothing_else(monkeypatch, capsys):
    monkeypatch.setattr(machine_code, "USES", {"first": lambda: None, "second": tell_of_compiling})
    machine_code.main()
    said = capsys.readouterr()
    first, second, last = said.err.splitlines()
    assert (first, said.out) == (NOTE, "")
    assert second.startswith("  second: ") and last.startswith("  done in ")
    monkeypatch.setattr(machine_code, "USES", {"first": lambda: None})
    machine_code.main()
    assert capsys.readouterr() == ("", "")
