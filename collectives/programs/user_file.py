"""Executing a user's file, in the process that is there for it, and the algorithms that it declares."""

import hashlib
import importlib.util
import sys
from pathlib import Path

from collectives.declaration import Algorithm, declared_in
from collectives.errors import InputError, describe_error

is_guest = False  # whether this process is there for a user's file, and may execute others that it names


def execute_file(path: Path) -> list[Algorithm]:
    """Execute a Python file and return the algorithms that it declares. Raises InputError for one that fails."""
    name = f"{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:12]}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise InputError(f"{path}: not a Python file (its name must end in .py)")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        del sys.modules[name]
        raise InputError(f"{path}: {describe_error(error, path)}") from error
    return declared_in(module, source=path)
