"""The program of a run: a script or a module, carried out once for each rank as processes would."""

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
    """A script, or the module of a name where ``is_module``, and its arguments."""

    name: str
    arguments: tuple[str, ...] = ()
    is_module: bool = False

    @property
    def title(self) -> str:
        """The program as one would type it, without the folders of a script."""
        name = f"-m {self.name}" if self.is_module else Path(self.name).name
        return " ".join([name, *self.arguments])

    @property
    def path(self) -> Path:
        """The script's file."""
        return Path.cwd() / self.name

    @property
    def folder(self) -> str:
        """The folder whose modules are the program's own: the script's, or the working directory."""
        return str(Path.cwd() if self.is_module else self.path.parent)

    @property
    def argv(self) -> list[str]:
        """What ``sys.argv`` is when it begins."""
        return [self.name, *self.arguments]

    @cached_property
    def code(self) -> CodeType:
        """The script, compiled. Raises InputError."""
        return self.compile()

    def compile(self) -> CodeType:
        """Compile the script, and keep nothing. Raises InputError where it cannot be read or is no Python."""
        try:
            return compile(self.path.read_bytes(), str(self.path), "exec")
        except OSError as error:
            raise InputError(f"{self.name}: {error.strerror}") from error
        except (SyntaxError, ValueError) as error:
            raise InputError(f"{self.name}: this is no program of Python: {error}") from error

    def carry_out(self) -> None:
        """Execute it as ``__main__``, as Python would."""
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
