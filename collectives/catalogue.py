"""Find algorithms by name: Ringlab's own, and those that a user's Python file declares."""

import copyreg
import importlib
import inspect
import os
import pkgutil
import sys
from dataclasses import replace
from functools import cache
from operator import attrgetter
from pathlib import Path
from pickle import PicklingError
from typing import Any

from collectives.checks import check_path
from collectives.declaration import (
    AUTO,
    GLOO,
    UNDECIDED,
    Algorithm,
    GloosOwn,
    NcclsOwn,
    Parameter,
    declared_in,
    nccl,
    split_parameters,
)
from collectives.errors import InputError
from collectives.input_files import FileBytes, check_input
from collectives.quoting import quote, suggest
from collectives.removed import ALGORITHMS, describe_removed
from collectives.spec import find_spec


@cache
def library() -> dict[str, Algorithm]:
    """Return Ringlab's own algorithms, keyed by their full names.

    >>> [name for name in library() if name.startswith("barrier/")]
    ['barrier/dissemination', 'barrier/naive', 'barrier/binomial']
    """
    package = importlib.import_module("collectives.algorithms")
    modules = [
        importlib.import_module(f"{package.__name__}.{info.name}") for info in pkgutil.iter_modules(package.__path__)
    ]
    return {algorithm.full_name: algorithm for module in modules for algorithm in declared_in(module)}


def find_algorithm(reference: str | Algorithm, collective: str | None = None, folder: Path | None = None) -> Algorithm:
    """Return the algorithm with the name ``reference``, such as ``all_reduce/ring``.

    If ``collective`` is set, the name can be short, such as ``ring``. A name such as ``my.py:name`` refers to a Python
    file in ``folder``, which is executed in a subprocess. Parameters can follow in brackets, as in ``chain[slices=4]``.
    An ``Algorithm`` is returned unchanged. Raise InputError with suggestions for an unknown name.

    >>> find_algorithm("chain[slices=4]", "broadcast").chunks(world_size=8)
    4
    """
    if isinstance(reference, Algorithm):
        _check_collective(reference, collective)
        return reference
    if not isinstance(reference, str):
        raise no_algorithm(reference)
    folder = None if folder is None else check_path("folder", folder)
    name, parameters = split_parameters(reference)
    if parameters:
        return find_algorithm(name, collective, folder).with_parameters(**parameters)
    if ".py" in reference:
        return _find_in_file(reference, collective, folder)
    full_name = reference if "/" in reference or collective is None else f"{collective}/{reference}"
    if full_name.rpartition("/")[2] == AUTO:
        raise InputError(f"{full_name} {UNDECIDED}")
    if full_name == f"all_reduce/{GLOO}":  # not part of the library
        return _gloos_own()
    if full_name in ALGORITHMS:
        raise InputError(describe_removed(ALGORITHMS, full_name))
    if full_name not in library():
        if os.path.isfile(Path(folder or ".", reference)):  # noqa: PTH113 - False also of a name that can be no file's
            raise InputError(f"{quote(reference)} is not a Python file; pass the name of an algorithm, or FILE.py:NAME")
        known = [name for name in library() if collective is None or name.startswith(f"{collective}/")]
        raise InputError(f"unknown algorithm {quote(full_name)}; {suggest(full_name, known, ', or FILE.py:NAME')}")
    builtin = library()[full_name]
    _check_collective(builtin, collective)
    return builtin


def no_algorithm(value: object) -> InputError:
    """Return the InputError to raise for a value that is neither an Algorithm nor a name."""
    hint = "; declare the function with @algorithm" if inspect.isroutine(value) else ""
    return InputError(f"algorithm must be an Algorithm or a name such as 'all_reduce/ring', not {quote(value)}{hint}")


def load_file(path: Path) -> list[Algorithm]:
    """Return the algorithms that a user's Python file declares. A worker process executes the file.

    Raise InputError if the file does not exist, fails, exceeds its limits, or declares no algorithm or one name twice.
    """
    from collectives.programs.recorded import load_recorded
    from collectives.programs.worker import Here, execute_file  # slow to import

    path = path.absolute()
    check_input(path, FileBytes.PROGRAM)
    path = path.resolve()
    declared = execute_file(path) if Here.is_worker else load_recorded(path)
    names = [algorithm.full_name for algorithm in declared]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"{path}: {name} is declared {names.count(name)} times; use a different name for each")
    if not declared:
        raise InputError(f'{path}: contains no algorithm; decorate a generator function with @algorithm("all_reduce")')
    return declared


def _find_in_file(reference: str, collective: str | None, folder: Path | None) -> Algorithm:
    file, _, name = reference.rpartition(":") if ".py:" in reference else (reference, "", "")
    candidates = load_file((folder or Path()) / file)
    named = [each for each in candidates if name in ("", each.name, each.full_name, each.function.__name__)]
    fitting = [candidate for candidate in named if collective in (None, candidate.spec.name)]
    chosen = fitting or named
    if len(chosen) != 1:
        known = ", ".join(candidate.full_name for candidate in candidates)
        problem = "several algorithms match" if chosen else "no algorithm matches"
        raise InputError(f"{reference}: {problem}; pass FILE.py:NAME, where NAME is one of {known}")
    _check_collective(chosen[0], collective)
    return chosen[0]


def _check_collective(candidate: Algorithm, collective: str | None) -> None:
    if collective is not None and candidate.spec.name != collective:
        raise InputError(
            f"{candidate.full_name} is not an algorithm for {collective}; choose a name that begins "
            f"with {collective}/ from `ringlab list algorithms`"
        )


def _reduce(algorithm: Algorithm) -> tuple[Any, ...]:
    """Return the function and the arguments from which pickle rebuilds an algorithm.

    A library algorithm is rebuilt from its name. For an algorithm from a user's file, the recorded program is stored,
    so that the other process does not execute the file. Any other algorithm is imported by its module and name. Raise
    PicklingError if it cannot be found there.
    """
    parameters = dict(algorithm.parameters)
    if algorithm.source is None and not algorithm.is_builtin:
        place = getattr(algorithm.function, "__module__", ""), getattr(algorithm.function, "__qualname__", "")
        try:
            value: object = attrgetter(place[1])(sys.modules[place[0]])
        except (KeyError, AttributeError):
            value = None
        if not isinstance(value, Algorithm) or value.function is not algorithm.function:
            raise PicklingError(f"another process cannot import {algorithm.full_name}; define it in a module")
        return _import_again, (*place, parameters, algorithm.by_model)
    if algorithm.source is None:
        return _find_again, (f"{algorithm.spec.name}/{algorithm.name}", parameters, algorithm.by_model)
    rules = algorithm.chunks_rule, algorithm.scratch_rule
    fields = algorithm.spec.name, algorithm.name, algorithm.function, *rules, parameters, algorithm.source
    return rebuild_algorithm, (*fields, algorithm.by_model)


def _find_again(full_name: str, parameters: dict[str, Parameter], by_model: bool = False) -> Algorithm:
    return replace(find_algorithm(full_name).with_parameters(**parameters), by_model=by_model)


def _import_again(module: str, name: str, parameters: dict[str, Parameter], by_model: bool) -> Algorithm:
    imported: Algorithm = attrgetter(name)(importlib.import_module(module))
    return replace(imported.with_parameters(**parameters), by_model=by_model)


def rebuild_algorithm(collective: str, *fields: Any) -> Algorithm:
    """Return an Algorithm for ``collective``. pickle calls this function with the Algorithm's other ``fields``."""
    return Algorithm(find_spec(collective), *fields)


def _gloos_own() -> GloosOwn:
    all_reduce: GloosOwn = importlib.import_module("collectives.algorithms.ring").ALL_REDUCE
    return all_reduce


copyreg.pickle(Algorithm, _reduce)
copyreg.pickle(GloosOwn, lambda _: (_gloos_own, ()))
copyreg.pickle(NcclsOwn, lambda algorithm: (nccl, (algorithm.spec.name,)))
