"""Machine code that is kept on disk: what is damaged is compiled again, and then kept."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from simcomm.kept_code import KNOWN_INSIDE

numba = pytest.importorskip("numba")
MODULE = """
from simcomm.kept_code import compile_and_cache
from simcomm.compiling import told_of_compiling

def double(number):
    return 2 * number

with told_of_compiling(lambda note: print("compiles")):
    print(compile_and_cache(double)(21))
"""
DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda content: b"",
    "cut short": lambda content: content[: len(content) // 2],
    "other bytes": lambda content: bytes(len(content)),
    "one bit": lambda content: content[:-9] + bytes([content[-9] ^ 1]) + content[-8:],
}


def run(folder: Path) -> list[str]:
    """What a program of its own prints that needs the code, which lies beside it."""
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parent.parent)}
    environment.pop("NUMBA_CACHE_DIR", None)
    done = subprocess.run(
        [sys.executable, "program.py"], cwd=folder, env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.mark.skipif(numba.version_info.short not in KNOWN_INSIDE, reason="a release of numba not looked into")
def test_damaged_code_is_compiled_again(tmp_path):
    (tmp_path / "program.py").write_text(MODULE)
    assert (run(tmp_path), run(tmp_path)) == (["compiles", "42"], ["42"])
    for number, (name, damage) in enumerate(DAMAGES.items()):
        ending = ("nbi", "nbc")[number % 2]  # the index, and the code
        [file] = (tmp_path / "__pycache__").glob(f"*.{ending}")
        file.write_bytes(damage(file.read_bytes()))
        assert (run(tmp_path), run(tmp_path)) == (["compiles", "42"], ["42"]), f"{name} of {ending}"
