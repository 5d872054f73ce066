"""Run the user's script or module once per rank, with torchrun's environment variables."""

import runpy
import sys
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from collectives.errors import InputError


@dataclass(frozen=True)
class UserProgram:
    """A Python script with its command-line arguments. If ``is_module`` is True, ``name`` is a module instead."""

    name: str
    arguments: tuple[str, ...] = ()
    is_module: bool = False

    @property
    def title(self) -> str:
        """The command line of the program, without the script's directory."""
        name = f"-m {self.name}" if self.is_module else Path(self.name).name
        return " ".join([name, *self.arguments])

    @property
    def path(self) -> Path:
        return Path.cwd() / self.name

    @property
    def folder(self) -> str:
        """The folder of the program's own modules: the script's folder, or the working directory for a module."""
        return str(Path.cwd() if self.is_module else self.path.parent)

    @property
    def argv(self) -> list[str]:
        return [self.name, *self.arguments]

    @cached_property
    def code(self) -> CodeType:
        """The compiled script, cached. Raises InputError if the script cannot be read or is not valid Python."""
        return self.compile()

    def compile(self) -> CodeType:
        """Compile the script without caching it. Raises InputError if it cannot be read or is not valid Python."""
        try:
            return compile(self.path.read_bytes(), str(self.path), "exec")
        except OSError as error:
            raise InputError(f"{self.name}: {error.strerror}") from error
        except (SyntaxError, ValueError) as error:
            raise InputError(f"{self.name}: not a Python program: {error}") from error

    def run(self) -> None:
        if self.is_module:
            runpy.run_module(self.name, run_name="__main__", alter_sys=True)
        else:
            self.execute("__main__")

    def execute(self, name: str) -> ModuleType:
        """Execute the script as the module ``__main__`` or ``__mp_main__`` of the calling rank."""
        module = ModuleType(name)
        values: dict[str, Any] = {
            "__file__": str(self.path),
            "__builtins__": __builtins__,
            "__cached__": None,
            "__spec__": None,
        }
        module.__dict__.update(values)
        sys.modules["__main__"] = sys.modules[name] = module
        exec(self.code, module.__dict__)
        return module


ADDRESS, PORT, RUN = "127.0.0.1", "29500", "virtual"  # names of a rendezvous that opens no connection


def name_as_torchrun(number: int, ranks: int, local_ranks: int) -> dict[str, str]:
    """Return the environment variables that torchrun sets for a rank, with ``local_ranks`` ranks per machine.

    >>> found = name_as_torchrun(3, 4, 2)
    >>> found["RANK"], found["LOCAL_RANK"], found["GROUP_RANK"]
    ('3', '1', '1')
    """
    node = number // local_ranks
    variables = {
        "RANK": number,
        "WORLD_SIZE": ranks,
        "LOCAL_RANK": number % local_ranks,
        "LOCAL_WORLD_SIZE": min(local_ranks, ranks - node * local_ranks),
        "GROUP_RANK": node,
        "GROUP_WORLD_SIZE": -(-ranks // local_ranks),
        "ROLE_RANK": number,
        "ROLE_WORLD_SIZE": ranks,
        "ROLE_NAME": "default",
        "MASTER_ADDR": ADDRESS,
        "MASTER_PORT": PORT,
        "TORCHELASTIC_RUN_ID": RUN,
        "TORCHELASTIC_RESTART_COUNT": 0,
        "TORCHELASTIC_MAX_RESTARTS": 0,
    }
    return {name: str(value) for name, value in variables.items()}
