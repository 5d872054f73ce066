"""Runs programs on virtual ranks from Python: ``ringlab.virtual.run``."""

from pathlib import Path
from typing import Any

from realcomm.launching.torch_process import check_torch
from ringlab.commands.virtual import VirtualAnswer, choose_cluster, run_virtually
from simcomm.cluster.cluster import Cluster
from virtual.hosting.host import Show, show_on_own
from virtual.options import VirtualOptions
from virtual.process.programs import UserProgram

__all__ = ["VirtualAnswer", "run"]


def run(
    program: str | Path,
    *arguments: str,
    ranks: int = 0,
    on: str | Cluster | None = None,
    timeout: float = 600.0,
    show: Show = show_on_own,
    **options: Any,
) -> VirtualAnswer:
    """Run a torch.distributed program on virtual ranks. With ``ranks=0``, the program starts its own processes.

    The program runs in a subprocess. ``on`` is a cluster, or a network as for ``--on``. Other ``options`` are fields of
    ``VirtualOptions``. Raises InputError for an invalid option, and RunFailed if the run crashes or exceeds ``timeout``
    seconds of real time.

    >>> run("train.py", "--epochs", "1", ranks=64, on="two-racks")  # doctest: +SKIP
    <VirtualAnswer of train.py --epochs 1: 64 ranks, 27.5 ms>
    """
    cluster = on if isinstance(on, Cluster) else choose_cluster(on, ranks)
    virtual_options = VirtualOptions(UserProgram(str(program), arguments), ranks, cluster, **options)
    check_torch()
    return run_virtually(virtual_options, timeout, show)
