"""Declare algorithms for collectives as rank programs, and prove that they are correct.

* A *rank program* is a generator function that yields the operations of one rank: ``send``, ``recv``, ``recv_reduce``,
  ``copy`` and ``reduce``. ``@algorithm`` declares it as an algorithm, and ``verify`` proves that it is correct.
  ``library`` and ``find_algorithm`` return algorithms, and ``on_group`` runs a program on a subset of the ranks.
* A ``CollectiveCall`` describes one call of a collective, and a ``Training`` describes a data-parallel training run.
  ``simcomm`` and ``realcomm`` accept both.
* A ``Trace`` records a run. A ``Calibration`` contains measurements of this machine.

>>> from collectives import algorithm, recv, recv_reduce, send, verify
>>> @algorithm("all_reduce", chunks=1)
... def swap(rank, world_size):
...     yield send(1 - rank, 0), recv_reduce(1 - rank, 0)
>>> verify(swap, world_size=2).messages
2

The package never imports torch. Each name is imported at its first use, so ``--help`` does not import numpy.
"""

import re
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from collectives.removed import FUNCTIONS, RENAMED_FUNCTIONS, describe_removed, warn_renamed


def exports_of(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return ``__getattr__``, ``__dir__`` and ``__all__`` for a package that lists its names in ``__init__.pyi``.

    Each name is imported when it is first used. Type checkers and editors read the same stub file.
    """
    stub = Path(__file__).parents[1].joinpath(*package.split("."), "__init__.pyi").read_text(encoding="utf-8")
    home = {name: module for module, name in re.findall(r"^from (\S+) import (\w+) as \2$", stub, re.MULTILINE)}

    def get(name: str) -> Any:
        if new := RENAMED_FUNCTIONS.get(f"{package}.{name}"):
            warn_renamed(package, name, new)
            name = new
        if name not in home:
            removed = describe_removed(FUNCTIONS, f"{package}.{name}")
            raise AttributeError(removed or f"module {package!r} has no attribute {name!r}")
        if home[name] == package:
            return import_module(f"{package}.{name}")
        return getattr(import_module(home[name]), name)

    def names() -> list[str]:
        return sorted({*(name for name in vars(sys.modules[package]) if name.startswith("__")), *home})

    return get, names, sorted(home)


__getattr__, __dir__, __all__ = exports_of(__name__)
