"""Where algorithms are declared and found: the library's own by name, a user's by file."""

import hashlib
import importlib
import importlib.util
import inspect
import pkgutil
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from collectives.errors import InputError
from collectives.parameters import Parameter, arguments_of, check_parameters, positional, split_brackets
from collectives.spec import Spec, find_spec
from collectives.step import Program, Step, as_step
from collectives.suggestions import suggest

CountRule = int | Callable[..., int] | None
Programs = Program | tuple[Program, ...]  # several: one a channel
AUTO = "auto"  # in place of an algorithm's name
UNDECIDED = (
    "is no algorithm: the model chooses one for a size and a cluster, in scenarios and `ringlab bench`; in Python ask "
    'simcomm.selection.choose("all_reduce", cluster, nbytes).algorithm and pass that'
)
Declared = TypeVar("Declared", bound=Callable[..., Programs])


@dataclass(frozen=True)
class Algorithm:
    """One way to achieve a spec: a rank program, into how many chunks it cuts the buffer, and its parameters."""

    spec: Spec
    name: str
    function: Callable[..., Programs]
    chunks_rule: CountRule = None  # None: one chunk a rank
    scratch_rule: CountRule = 0
    parameters: Mapping[str, Parameter] = field(default_factory=dict, hash=False)  # those that were set
    source: Path | None = None  # the user's file; None for the library's own
    by_model: bool = False  # it was chosen where "auto" stood

    @property
    def full_name(self) -> str:
        """``all_reduce/ring``: the collective and the label."""
        return f"{self.spec.name}/{self.label}"

    @property
    def label(self) -> str:
        """``ring``; parameters that were set follow in brackets; ``auto (ring)`` where the model chose it."""
        given = ", ".join(f"{key}={value}" for key, value in self.parameters.items())
        name = self.name + (f"[{given}]" if given else "")
        return f"{AUTO} ({name})" if self.by_model else name

    @property
    def is_auto(self) -> bool:
        """Whether it only stands for the algorithm that ``simcomm.selection`` will find for a size and a cluster."""
        return self.function is _undecided

    def chunks(self, world_size: int) -> int:
        """Into how many chunks the buffer is cut."""
        return self._count(self.chunks_rule, world_size, at_least=1)

    def scratch(self, world_size: int) -> int:
        """How many scratch chunks follow the buffer's."""
        return self._count(self.scratch_rule, world_size, at_least=0)

    def _count(self, rule: CountRule, world_size: int, at_least: int) -> int:
        if rule is None:
            return world_size
        count = self._call(rule, world_size) if callable(rule) else rule
        if not isinstance(count, int) or count < at_least:
            raise InputError(f"{self.full_name} asks for {count!r} chunks; a whole number from {at_least} on is needed")
        return count

    def _call(self, rule: Callable[..., int], world_size: int) -> int:
        """A rule receives the parameters that the program receives, as far as it takes them."""
        values, accepted = self._values(), list(inspect.signature(rule).parameters)[1:]
        try:
            return rule(world_size, **{key: value for key, value in values.items() if key in accepted})
        except InputError as error:
            raise type(error)(f"{self.full_name}, world size {world_size}: {error}") from error
        except (Exception, SystemExit) as error:
            what = describe(error, self.source)
            raise InputError(
                f"{self.full_name}, world size {world_size}: its number of chunks fails with {what}"
            ) from error

    def _values(self) -> dict[str, Parameter]:
        """Every parameter with its value: as it was set, or the default. Raises InputError where there is neither."""
        values = {}
        for parameter in _parameters(self.function, self.spec):
            value = self.parameters.get(parameter.name, parameter.default)
            if value is inspect.Parameter.empty:
                raise InputError(f"{self.full_name} needs a value for its parameter {parameter.name!r}")
            values[parameter.name] = value
        return values

    def channels(self, rank: int, world_size: int, root: int = 0) -> tuple[Iterator[Step], ...]:
        """The programs of one rank, one for each of its channels; a generator function has one.

        Each yields its steps in order; none where the function yields nothing and returns nothing. Raises InputError
        when it is no generator and returns neither generators nor nothing.
        """
        arguments = (rank, world_size, root) if self.spec.rooted else (rank, world_size)
        returned: object = self.function(*arguments, **self._values())
        programs = returned if isinstance(returned, tuple) and returned else (returned,)
        for program in programs:
            if program is not None and not isinstance(program, Iterator):
                raise InputError(f"it is no rank program: it returned {returned!r}; it must yield its steps")
        return tuple((as_step(yielded) for yielded in program or ()) for program in programs)

    def steps(self, rank: int, world_size: int, root: int = 0) -> Iterator[Step]:
        """The steps of one rank of an algorithm that has one channel. Raises InputError when it has several."""
        programs = self.channels(rank, world_size, root)
        if len(programs) > 1:
            raise InputError(f"{self.full_name} has {len(programs)} channels; only one can be run here")
        return programs[0]

    @property
    def parameter_names(self) -> list[str]:
        """What can be set."""
        return [parameter.name for parameter in _parameters(self.function, self.spec)]

    def with_parameters(self, **parameters: Parameter) -> "Algorithm":
        """The same algorithm with some of its parameters set.

        Raises InputError for one that it does not have, or a value of another type than it takes.
        """
        check_parameters(self.full_name, _parameters(self.function, self.spec), parameters)
        return replace(self, parameters={**self.parameters, **parameters})

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled by name, so that a worker process finds it again in the library or in the user's file."""
        return _find_again, (self.source, f"{self.spec.name}/{self.name}", dict(self.parameters), self.by_model)


def _find_again(
    source: Path | None, full_name: str, parameters: dict[str, Parameter], by_model: bool = False
) -> Algorithm:
    there = library() if source is None else {found.full_name: found for found in load_file(source)}
    if full_name not in there:
        raise InputError(f"{source or 'the library'}: {full_name} is no longer there; there are {', '.join(there)}")
    return replace(there[full_name].with_parameters(**parameters), by_model=by_model)


def auto(collective: str) -> Algorithm:
    """What stands for the fastest algorithm until ``simcomm.selection.resolve_auto`` finds it. Raises InputError."""
    return Algorithm(find_spec(collective), AUTO, _undecided, chunks_rule=1)


def _undecided(*_: int) -> Programs:
    raise InputError(f"{AUTO!r} {UNDECIDED}")


def _arity(spec: Spec) -> int:
    return 3 if spec.rooted else 2


def algorithm(
    collective: str, name: str | None = None, chunks: CountRule = None, scratch: CountRule = 0
) -> Callable[[Declared], Declared]:
    """Declare a rank program as an algorithm for ``collective``; the function itself stays as it is.

    ``chunks`` is into how many chunks the buffer is cut (``world_size`` unless said) and ``scratch`` how many more
    the program may use; each a number or a function of ``world_size`` and the program's own parameters.
    Raises InputError for an unknown collective or a function that does not take its arguments.
    """
    spec = find_spec(collective)

    def declare(function: Declared) -> Declared:
        label = name or function.__name__
        wanted = ("rank", "world_size", "root")[: _arity(spec)]
        if len(positional(function)) < len(wanted):
            raise InputError(f"{collective}/{label}: the program must take ({', '.join(wanted)})")
        function.__algorithm__ = Algorithm(spec, label, function, chunks, scratch)  # type: ignore[attr-defined]
        return function

    return declare


def _parameters(function: Callable[..., Programs], spec: Spec) -> list[inspect.Parameter]:
    """What a program takes besides rank, world_size and root."""
    return [*arguments_of(function)[_arity(spec) :]]


def declared_in(module: ModuleType, source: Path | None = None) -> list[Algorithm]:
    """The algorithms that a module itself declares, in the order of its text."""
    found = []
    for value in vars(module).values():
        declared = getattr(value, "__algorithm__", None)
        if isinstance(declared, Algorithm) and value.__module__ == module.__name__:
            found.append(replace(declared, source=source))
    return found


@cache
def library() -> dict[str, Algorithm]:
    """Ringlab's own algorithms by full name."""
    package = importlib.import_module("collectives.algorithms")
    modules = [
        importlib.import_module(f"{package.__name__}.{info.name}") for info in pkgutil.iter_modules(package.__path__)
    ]
    return {found.full_name: found for module in modules for found in declared_in(module)}


def load_file(path: Path) -> list[Algorithm]:
    """Execute a user's Python file and return the algorithms that it declares.

    Raises InputError when the file is missing, fails, or declares none.
    """
    path = path.resolve()
    if not path.is_file():
        raise InputError(f"{path}: no such file")
    name = f"{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:12]}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise InputError(f"{path}: not a Python file (its name must end in .py)")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise InputError(f"{path}: {describe(error, path)}") from error
    found = declared_in(module, source=path)
    _check_names(path, found)
    if not found:
        raise InputError(f'{path}: declares no algorithm; put @algorithm("all_reduce") above a rank program')
    return found


def _check_names(path: Path, found: list[Algorithm]) -> None:
    names = [algorithm.full_name for algorithm in found]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"{path}: {name} is declared {names.count(name)} times; give each its own name")


def describe(error: BaseException, source: Path | None) -> str:
    """An exception in one line: ``ZeroDivisionError: division by zero (line 12 of mine.py)``.

    The line is the innermost one in the user's own file, where there is one.
    """
    line, frame = error.lineno if isinstance(error, SyntaxError) else None, error.__traceback__
    while frame is not None:
        if frame.tb_frame.f_code.co_filename == str(source):
            line = frame.tb_lineno
        frame = frame.tb_next
    message = error.msg if isinstance(error, SyntaxError) else str(error)
    where = f" (line {line} of {source.name})" if source and line else ""
    return f"{type(error).__name__}{message and f': {message}'}{where}"


def find_algorithm(reference: str, collective: str | None = None, folder: Path | None = None) -> Algorithm:
    """The algorithm called ``all_reduce/ring``, ``ring`` (of ``collective``) or ``my.py:name`` (from ``folder``).

    Parameters may follow as labels show them: ``chain[slices=4]``. Raises InputError that lists what there is.
    """
    name, parameters = split_brackets(reference)
    if parameters:
        return find_algorithm(name, collective, folder).with_parameters(**parameters)
    if ".py" in reference:
        return _find_in_file(reference, collective, folder)
    full_name = reference if "/" in reference or collective is None else f"{collective}/{reference}"
    if full_name.rpartition("/")[2] == AUTO:
        raise InputError(f"{full_name} {UNDECIDED}")
    if full_name not in library():
        known = [name for name in library() if collective is None or name.startswith(f"{collective}/")]
        raise InputError(f"no algorithm is called {full_name!r}; {suggest(full_name, known, ', or FILE.py:NAME')}")
    found = library()[full_name]
    _require(found, collective)
    return found


def _find_in_file(reference: str, collective: str | None, folder: Path | None) -> Algorithm:
    file, _, name = reference.rpartition(":") if ".py:" in reference else (reference, "", "")
    candidates = load_file((folder or Path()) / file)
    named = [found for found in candidates if name in ("", found.name, found.full_name, found.function.__name__)]
    fitting = [found for found in named if collective in (None, found.spec.name)]
    chosen = fitting or named
    if len(chosen) != 1:
        known = ", ".join(found.full_name for found in candidates)
        problem = "fits more than one of its algorithms" if chosen else "names none of its algorithms"
        raise InputError(f"{reference} {problem}; add :NAME of one of {known}")
    _require(chosen[0], collective)
    return chosen[0]


def _require(found: Algorithm, collective: str | None) -> None:
    if collective is not None and found.spec.name != collective:
        raise InputError(f"{found.full_name} is no {collective}; name one that was declared for it")
