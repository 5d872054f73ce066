"""What every rank says: algorithms and their proof, requests and trainings, and the records that a run leaves.

* ``@algorithm`` declares a rank program, written with ``send``, ``recv``, ``recv_reduce``, ``copy``, ``reduce``
  and ``on_group``. ``library`` and ``find_algorithm`` find what is declared, and ``verify`` proves it.
* A ``Request`` is one call of a collective, a ``Training`` a data-parallel training; both wings take either.
* A ``Trace`` is what happened in a run, a ``Calibration`` what was measured of this machine.

No torch, no clock. Nothing is imported before it is used: a command that only says what its options are needs no numpy.
"""

import re
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any


def exports_of(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return ``__getattr__``, ``__dir__`` and ``__all__`` of a package, which exports what its ``__init__.pyi`` names.

    Type checkers and editors read that file too. A name is imported when it is first asked for.
    """
    stub = Path(__file__).parents[1].joinpath(*package.split("."), "__init__.pyi").read_text(encoding="utf-8")
    home = {name: module for module, name in re.findall(r"^from (\S+) import (\w+) as \2$", stub, re.MULTILINE)}

    def get(name: str) -> Any:
        if name not in home:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        if home[name] == package:
            return import_module(f"{package}.{name}")
        return getattr(import_module(home[name]), name)

    return get, lambda: sorted({*vars(sys.modules[package]), *home}), sorted(home)


__getattr__, __dir__, __all__ = exports_of(__name__)
