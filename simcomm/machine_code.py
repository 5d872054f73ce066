"""Compile all machine code of the compiled engine now, so that no later command waits for it.

    python -m simcomm.machine_code

`make install` runs this. The machine code is stored in the user's cache folder, or next to the sources if that folder
is not writable. It is compiled again when a source changes.
"""

import sys
from collections.abc import Callable
from dataclasses import replace
from time import monotonic

import numpy as np

from collectives.transport import TcpTerms
from simcomm.cluster.cluster import IDEAL
from simcomm.cluster.topologies import star, two_level_tree
from simcomm.compiling import reporting_compilation
from simcomm.model.faults import NO_FAULTS, Faults, LinkFault
from simcomm.parallel import in_any_order
from simcomm.simulate import run

HOSTS = 4
LARGE = 258  # hosts with enough pairs for the compiled search of routes


def _events() -> None:
    for faults in (NO_FAULTS, Faults(links=(LinkFault(("h0", "s0"), share=0.5, at=1e-6, lasting=1e-6),))):
        run("all_reduce/naive", star(HOSTS, "1 GB/s", "1 us"), 4096, engine="compiled", faults=faults)


def _tcp() -> None:
    transport = replace(IDEAL, tcp=TcpTerms(send_buffer=4096, window=65536, burst=1500))
    run("all_reduce/ring", replace(star(HOSTS, "1 GB/s", "1 us"), transport=transport), 65536, engine="compiled")


def _routes() -> None:
    tree = two_level_tree(2, LARGE // 2, "1 GB/s", "1 us", oversubscription=4)
    tree.router().links_between(tree.hosts, *np.indices((LARGE, LARGE)).reshape(2, -1))


USES: tuple[Callable[[], None], ...] = (_events, _tcp, _routes)  # longest first


def _compile(use: Callable[[], None]) -> bool:
    notes = list[str]()
    with reporting_compilation(notes.append):
        use()
    return bool(notes)


def main() -> None:
    """Compile all machine code on all cores. If anything was compiled, print the elapsed time to standard error."""
    start = monotonic()
    is_compiled = dict(in_any_order(_compile, USES, takes_long=True))
    if any(is_compiled.values()):
        sys.stderr.write(f"compiled the simulator's machine code in {monotonic() - start:.1f} s\n")


if __name__ == "__main__":
    from simcomm.machine_code import main as compile_all  # the name under which other processes find its functions

    try:
        compile_all()
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        sys.exit(130)
