"""The programs that set up networks: ``ip``, ``tc`` and ``bridge`` of iproute2."""

import os
import shutil
import subprocess
from collections.abc import Iterable, Sequence

from collectives.errors import RunFailed

TOOLS = ("ip", "tc", "bridge")
CANNOT = "no cluster can be emulated"


def check_tools() -> None:
    """Raise RunFailed where one of the tools is missing."""
    if missing := [tool for tool in TOOLS if _find(tool) is None]:
        raise RunFailed(f"{CANNOT}: {', '.join(missing)} is missing; it comes with iproute2")


def run_batch(tool: str, lines: Iterable[str], pass_files: Sequence[int] = ()) -> None:
    """Have one process of a tool do all lines, in the network namespace that this process is in. Raise RunFailed."""
    if text := "".join(f"{line}\n" for line in lines):
        run_tool(tool, ["-batch", "-"], text, pass_files)


def run_tool(tool: str, arguments: Sequence[str], text: str = "", pass_files: Sequence[int] = ()) -> str:
    """Run a tool with ``text`` as its input and these files open, and return its output. Raise RunFailed."""
    call = [_find(tool) or tool, *arguments]
    done = subprocess.run(call, input=text, capture_output=True, text=True, pass_fds=pass_files)
    if done.returncode != 0:
        raise RunFailed(f"{CANNOT}: {tool} says: {' '.join(done.stderr.split())[:300]}")
    return done.stdout


def _find(tool: str) -> str | None:
    """Return the file of a tool: an ordinary user's PATH often lacks sbin."""
    return shutil.which(tool, path=os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"]))
