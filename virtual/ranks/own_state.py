"""Save a rank's process-wide state when the run token leaves the rank, and restore it when the token returns."""

import os
import random
import sys
import warnings
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch

from virtual.ranks.sites import is_users

OWNED = (
    "accelerate", "deepspeed", "hydra", "lightning", "lightning_fabric", "pytorch_lightning",
)  # fmt: skip  # packages that keep process-wide state
SEED = 12345  # rank r uses the seed SEED + r


@dataclass(eq=False)
class OwnState:
    """A rank's process-wide state: arguments, environment, modules, random number generators and torch defaults."""

    environment: dict[bytes, bytes]
    argv: list[str]
    path: list[str]
    main: ModuleType | None = None
    modules: dict[str, ModuleType] = field(default_factory=dict)
    torch_numbers: torch.Tensor | None = None
    python_numbers: random.Random = field(default_factory=random.Random)
    numpy_numbers: Any = None
    dtype: torch.dtype = torch.float32
    warning_filters: Any = None
    warning_shown_by: Any = None  # catch_warnings replaces these functions
    operators: dict[Any, Any] | None = None  # DTensor's handlers, which loss_parallel() changes

    def seed(self, number: int) -> None:
        """Seed the random number generators differently on each rank, but identically in every run."""
        self.torch_numbers = torch.Generator().manual_seed(SEED + number).get_state()
        self.numpy_numbers = np.random.MT19937(SEED + number)
        self.python_numbers.seed(SEED + number)


class Belongings:
    """Saves and restores the process-wide state of ranks.

    Each rank imports its own copy of the modules in the program's folder or on PYTHONPATH, and of the packages in
    ``owned`` and ``OWNED``. All other installed packages are shared.
    """

    def __init__(self, folder: str, owned: frozenset[str] = frozenset()) -> None:
        on_path = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
        self.folders = tuple(str(Path(entry).absolute()).rstrip(os.sep) + os.sep for entry in (folder, *on_path))
        self.owned = owned.union(OWNED)
        self.names: set[str] = set()  # modules that each rank imports separately
        self._known = set(sys.modules)  # modules that were checked
        self._count = len(sys.modules)
        self._filters = list(warnings.filters)
        self._shown_by = warnings.showwarning, warnings._showwarnmsg_impl  # type: ignore[attr-defined]
        self._look_for_modules()

    def save(self, state: OwnState) -> None:
        state.argv, state.path, state.main = sys.argv, sys.path, sys.modules.get("__main__")
        state.torch_numbers = torch.get_rng_state()
        state.numpy_numbers = np.random.get_bit_generator()  # type: ignore[attr-defined]
        state.dtype = torch.get_default_dtype()
        state.warning_filters = warnings.filters
        state.warning_shown_by = warnings.showwarning, warnings._showwarnmsg_impl  # type: ignore[attr-defined]
        dispatcher = _find_dispatcher()
        if dispatcher is not None:
            state.operators = dispatcher._custom_op_handlers
        modules = sys.modules
        if len(modules) != self._count:
            self._look_for_modules()
        state.modules = {name: modules.pop(name) for name in self.names if name in modules}

    def restore(self, state: OwnState) -> None:
        os.environ._data = state.environment  # type: ignore[attr-defined]
        sys.argv, sys.path = state.argv, state.path
        sys.modules.update(state.modules)
        self._count = len(sys.modules)
        if state.main is not None:
            sys.modules["__main__"] = state.main
        if state.torch_numbers is not None:
            torch.set_rng_state(state.torch_numbers)
        if state.numpy_numbers is not None:
            np.random.set_bit_generator(state.numpy_numbers)  # type: ignore[attr-defined]
        if state.warning_filters is None:
            state.warning_filters, state.warning_shown_by = list(self._filters), self._shown_by
        are_others = warnings.filters != state.warning_filters
        warnings.filters = state.warning_filters
        warnings.showwarning, warnings._showwarnmsg_impl = state.warning_shown_by  # type: ignore[attr-defined]
        if are_others:  # show warnings again that another rank has shown
            warnings._filters_mutated()  # type: ignore[attr-defined]
        if torch.get_default_dtype() is not state.dtype:
            torch.set_default_dtype(state.dtype)
        dispatcher = _find_dispatcher()
        if dispatcher is not None:
            dispatcher._custom_op_handlers = state.operators or type(dispatcher)()._custom_op_handlers

    def is_owned(self, name: str) -> bool:
        """Return whether each rank has its own module of this name."""
        top = name.partition(".")[0]
        if top in self.owned:
            return True
        module = sys.modules.get(name)
        file = getattr(module, "__file__", None)  # a namespace package has no file, only folders
        files = [folder + os.sep for folder in getattr(module, "__path__", ())] if file is None else [file]
        return any(path.startswith(self.folders) and is_users(path) for path in files)

    def may_be_owned(self, name: str) -> bool:
        """Return whether each rank will import its own module of this name."""
        top = name.partition(".")[0]
        if top in self.owned:
            return True
        return any(Path(f"{parent}{top}.py").exists() or Path(parent, top).is_dir() for parent in self.folders)

    def _look_for_modules(self) -> None:
        for name in sys.modules.keys() - self._known - self.names:
            if name == "__main__":
                continue
            if self.is_owned(name):
                self.names.add(name)
            else:
                self._known.add(name)
        _turn_off_fsdps_profiler()


def _turn_off_fsdps_profiler() -> None:
    """Replace FSDP's profiler, which rejects a phase that several ranks of a process enter."""
    profiler = getattr(sys.modules.get("torch.distributed.fsdp._debug_utils"), "SimpleProfiler", None)
    if profiler is not None:
        profiler.profile = nullcontext


def _find_dispatcher() -> Any:
    tensor = getattr(sys.modules.get("torch.distributed.tensor"), "DTensor", None)
    return getattr(tensor, "_op_dispatcher", None)
