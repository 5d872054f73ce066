"""Predict, run and draw distributed training jobs in notebooks and scripts, as the command line does.

* ``load``: read a built-in scenario or a file, with optional changes.
* ``predict``: simulate the collectives and training runs of a scenario on its cluster.
* ``run``: run a scenario on real processes on this machine, and measure its times.
* ``compare``: predict a scenario, run it, and compare the times.
* ``animate``: draw the messages as a player (.html), an animation (.gif) or a timeline (.png).
* ``plot``: draw a training step, the scaling, the critical path or the cluster.
* ``predict_devices``: predict the time, memory and cost of a training on several numbers of GPUs.
* ``predict_sweep``: predict a scenario for each value of a key, such as a size.
* ``plan``: find instance types to rent for a training.
* ``check``: prove that a built-in algorithm or your own is correct.

>>> import ringlab
>>> scenario = ringlab.load("star8", "collective.sizes=8 MiB")
>>> for row in scenario.predict().collectives:
...     print(f"{row.algorithm}: {row.time_s * 1e3:.1f} ms")
naive: 94.1 ms
ring: 11.9 ms

``help(ringlab.load)`` explains ``load``. To write algorithms, start with ``collectives.algorithm``; to build
clusters, use ``simcomm``.
"""

from importlib import import_module
from typing import Any

from collectives import exports_of

_export, __dir__, _names = exports_of(__name__)
__all__ = [name for name in _names if name.islower() or name in ("BenchOptions", "Scenario")]  # what help shows


def __getattr__(name: str) -> Any:
    return import_module("importlib.metadata").version("ringlab") if name == "__version__" else _export(name)
