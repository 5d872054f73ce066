"""Declare rank programs as algorithms: the decorator ``@algorithm`` and the class ``Algorithm``.

A program can have parameters, which are integers or strings. Their values are checked against its signature.
"""

import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import WRAPPER_ASSIGNMENTS, lru_cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar, Generic, cast

import numpy as np
import numpy.typing as npt
from typing_extensions import ParamSpec, TypeVar  # these have defaults, so that ``Algorithm`` alone is a type

from collectives.checks import check_text, check_whole_number
from collectives.errors import InputError, describe_error, describe_line, line_in, shorten, with_line
from collectives.quoting import quote
from collectives.spec import Spec, find_spec
from collectives.step import Program, Step, as_step, line_reached

if TYPE_CHECKING:
    from collectives.transport import Transport


Parameter = int | str | None
KINDS: dict[type, str] = {int: "an integer", str: "a string"}
BRACKETED = re.compile(r"(?P<name>[^\[\]]+)\[(?P<given>.*)\]")
OUTSIDE_BRACKETS = re.compile(r",\s*(?![^\[]*\])")  # a comma outside of brackets


@lru_cache(maxsize=1024)
def function_parameters(function: Callable[..., Any]) -> tuple[inspect.Parameter, ...]:
    return tuple(inspect.signature(function).parameters.values())


def check_parameters(subject: str, known: Sequence[inspect.Parameter], values: Mapping[str, Parameter]) -> None:
    """Raise InputError if ``values`` contains a parameter that is not in ``known``, or a value of the wrong type."""
    by_name = {parameter.name: parameter for parameter in known}
    for key, value in values.items():
        if key not in by_name:
            raise InputError(f"{subject} has no parameter {quote(key)}; it has: {', '.join(by_name) or 'none'}")
        kinds = _kinds(by_name[key])
        if value is not None and type(value) not in kinds:
            wanted = " or ".join(KINDS[kind] for kind in kinds)
            raise InputError(f"{subject}: parameter {key} must be {wanted}, not {quote(value)}")


def _kinds(parameter: inspect.Parameter) -> list[type]:
    written = inspect.formatannotation(parameter.annotation)
    annotated = [kind for kind in KINDS if re.search(rf"\b{kind.__name__}\b", written)]
    alike = [kind for kind in KINDS if type(parameter.default) is kind]
    return annotated or alike or [*KINDS]


def split_parameters(reference: str) -> tuple[str, dict[str, Parameter]]:
    """Split a reference such as ``chain[slices=4]`` into the name and the parameters.

    A value that looks like an integer becomes one. Raise InputError if the reference is malformed.

    >>> split_parameters("chain[slices=4]")
    ('chain', {'slices': 4})
    """
    match = BRACKETED.fullmatch(reference)
    if match is None:
        return reference, {}
    parameters: dict[str, Parameter] = {}
    for part in OUTSIDE_BRACKETS.split(match["given"]):
        key, _, value = (side.strip() for side in part.partition("="))
        if not key or not value:
            raise InputError(f"{reference}: write parameters as in chain[slices=4] or hierarchical[gpus=4, rail=ring]")
        parameters[key] = int(value) if re.fullmatch(r"-?\d+", value) else value
    return match["name"], parameters


MOST_CHUNKS, MOST_SCRATCH = 10**9, 10**6  # both must fit into 32 bits; a proof stores all scratch of all ranks
CountRule = int | Callable[..., int] | None
Programs = Program | tuple[Program, ...]  # several programs: one per channel
AUTO = "auto"  # used in place of the name of an algorithm
GLOO = "gloo"  # gloo's own all_reduce
NCCL = "nccl"  # NCCL's own implementation
UNDECIDED = (
    "is not an algorithm: the model chooses one for a size and a cluster, in scenarios and `ringlab bench`; in Python, "
    'pass simcomm.selection.choose("all_reduce", cluster, nbytes).algorithm'
)
Arguments = ParamSpec("Arguments", default=...)  # parameters of the program's function
Returned = TypeVar("Returned", bound=Programs, default=Programs, covariant=True)


@dataclass(frozen=True, repr=False)
class Algorithm(Generic[Arguments, Returned]):
    """An algorithm for a collective: its rank program, its number of chunks, and its parameters.

    Calling an algorithm returns the program of one rank, so another program can ``yield from`` it.

    >>> from collectives import find_algorithm
    >>> chain = find_algorithm("broadcast/chain")
    >>> chain, chain.with_parameters(slices=2).chunks(world_size=4)
    (<Algorithm broadcast/chain>, 2)
    """

    backend: ClassVar[str | None] = None  # the backend that implements it; real ranks call that backend
    has_program: ClassVar[bool] = True  # False: no rank program; a model predicts the backend's implementation
    is_decided: ClassVar[bool] = True

    spec: Spec
    name: str
    function: Callable[Arguments, Returned]
    chunks_rule: CountRule = None  # None: one chunk per rank
    scratch_rule: CountRule = 0
    parameters: Mapping[str, Parameter] = field(default_factory=dict, hash=False)  # only the parameters that were set
    source: Path | None = None  # the user's file; None for the library's own
    by_model: bool = False  # chosen by the performance model for "auto"

    def __call__(self, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Returned:
        return self.function(*args, **{**self.parameters, **kwargs})  # type: ignore[arg-type]

    def __repr__(self) -> str:
        return f"<Algorithm {self.full_name}{f' of {self.source}' if self.source else ''}>"

    @property
    def is_builtin(self) -> bool:
        """Whether this is one of Ringlab's own algorithms. A user's algorithm can have the same name."""
        module = str(getattr(self.function, "__module__", ""))
        return self.source is None and module.startswith(("collectives.algorithms.", __name__))

    @property
    def file(self) -> str:
        """The path of the file that defines a user's program. Empty for Ringlab's own algorithms, and if unknown."""
        code = getattr(inspect.unwrap(self.function), "__code__", None)
        return str(self.source or ("" if self.is_builtin or code is None else code.co_filename))

    @property
    def first_line(self) -> int:
        """The line number at which the function starts, or 0 if unknown."""
        function = inspect.unwrap(self.function)
        return function.__code__.co_firstlineno if inspect.isfunction(function) else 0

    @property
    def full_name(self) -> str:
        """The collective and the label, such as ``all_reduce/ring``."""
        return f"{self.spec.name}/{self.label}"

    @property
    def label(self) -> str:
        """The name with its parameters, such as ``chain[slices=4]``, or ``auto (ring)`` if ``auto`` selected it."""
        text = ", ".join(f"{key}={value}" for key, value in self.parameters.items())
        name = self.name + (f"[{text}]" if text else "")
        return f"{AUTO} ({name})" if self.by_model else name

    def decide(self, choose: "Callable[[], Algorithm]") -> "Algorithm":
        """Return this algorithm. The placeholder ``auto`` overrides this method to return the result of ``choose``."""
        return self

    def costs_of(self, transport: "Transport") -> "Transport":
        """Return ``transport``. gloo's own implementation overrides this method, because its software costs differ."""
        return transport

    @property
    def needs_equal_chunks(self) -> bool:
        """Whether all chunks must have the same size, because the collective moves data from one chunk to another."""
        return self.spec.moves

    def least_elements(self, world_size: int) -> int:
        """Return the minimum number of elements in a buffer."""
        return 0

    @property
    def parameter_names(self) -> list[str]:
        return [parameter.name for parameter in self.parameters_taken]

    def chunks(self, world_size: int) -> int:
        """Return the number of chunks. Raise InputError if the declared function fails or returns no valid count."""
        return self._count(self.chunks_rule, world_size, at_least=1, at_most=MOST_CHUNKS)

    def scratch(self, world_size: int) -> int:
        """Return the number of scratch chunks. Raise InputError if the declared function returns no valid count."""
        return self._count(self.scratch_rule, world_size, at_least=0, at_most=MOST_SCRATCH)

    def channels(self, rank: int, world_size: int, root: int = 0) -> tuple[Iterator[Step], ...]:
        """Return one iterator for each channel of a rank, over its steps. A generator function has a single channel.

        If the function returns None, there are no steps. Raise InputError unless it returns generators or None.
        """
        return tuple((as_step(yielded) for yielded in program) for program in self.start(rank, world_size, root))

    def start(self, rank: int, world_size: int, root: int = 0) -> tuple[Program, ...]:
        """Return the generators of a rank, one per channel. They can yield single operations instead of steps.

        Raise InputError if the function returns anything but a generator, None, or a tuple of these.
        """
        check_whole_number("world_size", world_size, at_least=1)
        arguments = (rank, world_size, root) if self.spec.rooted else (rank, world_size)
        returned: object = cast(Callable[..., object], self.function)(*arguments, **self._values())
        programs = returned if type(returned) is tuple and returned else (returned,)
        for program in programs:
            if program is not None and not isinstance(program, Iterator):
                raise InputError(f"the program of a rank must yield steps, not return {shorten(returned)}")
        return tuple(iter(()) if program is None else program for program in programs)

    def recorded(self, world_size: int, root: int = 0) -> npt.NDArray[np.int32] | None:
        """Return the operations of all ranks as recorded from a user's file, or None if the algorithm has no recording.

        Each row is an operation, with the columns rank, channel, step, kind, peer, chunk, count and into. Raise
        InputError if the program fails.
        """
        table: Callable[..., npt.NDArray[np.int32]] | None = getattr(self.function, "table", None)
        if table is None or self.source is None:
            return None
        arguments = (world_size, root) if self.spec.rooted else (world_size,)
        return table(*arguments, **self._values())

    def find_line(self, at: tuple[int, int, int] | None, world_size: int, root: int = 0) -> str:
        """Return text such as ``line 9 of my.py`` for the line that yields a step, or "" if no line is known.

        ``at`` is the step as a (rank, channel, step) tuple. If it is None or its line is not found, the text names the
        first line of the program. The text is always empty for Ringlab's own algorithms. The lines of a user's file
        were recorded. Any other program runs again to find the line.
        """
        find: Callable[..., int | None] | None = getattr(self.function, "find_line", None)
        if find is not None and self.source is not None:
            return describe_line(find(at, world_size, root, **self._values()), self.source)
        line = self.first_line
        if at is not None and self.file:
            rank, channel, step = at
            with suppress(Exception, SystemExit):  # a failure of the program was reported before
                program = self.start(rank, world_size, root)[channel]
                for _ in range(step + 1):
                    next(program)
                line = line_reached(program, self.file) or line
        return describe_line(line, self.file)

    def steps(self, rank: int, world_size: int, root: int = 0) -> Iterator[Step]:
        """Return the steps of one rank. Raise InputError if the algorithm has several channels."""
        programs = self.channels(rank, world_size, root)
        if len(programs) > 1:
            raise InputError(f"{self.full_name} has {len(programs)} channels; use an algorithm with only one")
        return programs[0]

    def with_parameters(self, **parameters: Parameter) -> "Algorithm":
        """Return a copy with these parameters set, in addition to those already set.

        Raise InputError for an unknown parameter or a value of the wrong type.
        """
        check_parameters(self.full_name, self.parameters_taken, parameters)
        return replace(self, parameters={**self.parameters, **parameters})

    def _count(self, rule: CountRule, world_size: int, at_least: int, at_most: int) -> int:
        world_size = check_whole_number("world_size", world_size, at_least=1)
        if rule is None:
            return world_size
        count = self._call(rule, world_size) if callable(rule) else rule
        subject = f"{self.full_name}: the number of {'chunks' if at_least else 'scratch chunks'}"
        if not isinstance(count, int) or count < at_least:
            raise InputError(f"{subject} must be an integer of at least {at_least}, not {count!r}")
        if count > at_most:
            raise InputError(f"{subject} must be at most {at_most:,}, not {quote(count)}")
        return count

    def _call(self, rule: Callable[..., int], world_size: int) -> int:
        arguments = self.rule_arguments(rule)
        try:
            return rule(world_size, **arguments)
        except InputError as error:
            text = with_line(str(error), line_in(error, self.file), self.file)
            raise type(error)(f"{self.full_name}, world size {world_size}: {text}") from error
        except (Exception, SystemExit) as error:
            problem = describe_error(error, self.file)
            raise InputError(
                f"{self.full_name}, world size {world_size}: the function that counts chunks raised {problem}"
            ) from error

    def rule_arguments(self, rule: Callable[..., int]) -> dict[str, Parameter]:
        """Return those parameters of the program that ``rule`` also takes, with their values.

        ``rule`` is the declared function for the number of chunks or scratch chunks.
        """
        accepted = list(inspect.signature(rule).parameters)[1:]
        return {key: value for key, value in self._values().items() if key in accepted}

    def _values(self) -> dict[str, Parameter]:
        values = {}
        for parameter in self.parameters_taken:
            value = self.parameters.get(parameter.name, parameter.default)
            if value is inspect.Parameter.empty:
                raise InputError(
                    f"{self.full_name} requires its parameter {parameter.name!r}; add {parameter.name}=VALUE"
                )
            values[parameter.name] = value
        return values

    @property
    def parameters_taken(self) -> tuple[inspect.Parameter, ...]:
        """The parameters of the program other than rank, world_size and root."""
        return function_parameters(self.function)[len(first_arguments(self.spec)) :]


def check_applies(algorithm: Algorithm, *, op: bool = False, root: bool = False) -> None:
    """Raise InputError if ``op`` is True but the collective does not reduce, or ``root`` is True but it has no root."""
    spec = algorithm.spec
    if op and not spec.reduces:
        raise InputError(f"{algorithm.full_name}: {spec.name} does not reduce; remove op")
    if root and not spec.rooted:
        raise InputError(f"{algorithm.full_name}: {spec.name} does not have a root; remove root")


class Undecided(Algorithm):
    """The placeholder ``auto``. ``simcomm.selection`` replaces it with an algorithm for a given size and cluster."""

    is_decided = False

    def decide(self, choose: Callable[[], Algorithm]) -> Algorithm:
        return replace(choose(), by_model=True)


class NcclsOwn(Algorithm):
    """NCCL's own implementation of a collective. It has no rank program, and ``simcomm.nccl`` predicts its time."""

    backend, has_program = NCCL, False

    @property
    def needs_equal_chunks(self) -> bool:
        return self.spec.moves or self.spec.has_parts  # these collectives have parts of equal length

    def least_elements(self, world_size: int) -> int:
        return world_size if self.needs_equal_chunks else 1


class GloosOwn(Algorithm):
    """gloo's own implementation of a collective. Its rank program is for predictions only. Real ranks call gloo."""

    backend = GLOO

    def costs_of(self, transport: "Transport") -> "Transport":
        """Return ``transport`` with the costs of gloo, which posts and awaits messages in C++."""
        return transport.for_gloo()


def algorithm(
    collective: str, name: str | None = None, chunks: CountRule = None, scratch: CountRule = 0
) -> Callable[[Callable[Arguments, Returned]], Algorithm[Arguments, Returned]]:
    """Declare a rank program as an algorithm for ``collective``. The decorated function becomes an ``Algorithm``.

    ``simcomm.run``, ``verify`` and other functions accept the algorithm, and other programs can call it. ``name``
    defaults to the function's name. ``chunks`` is the number of chunks of the buffer (default: ``world_size``).
    ``scratch`` is the number of additional chunks (default: 0). Each is a number, or a function of ``world_size`` and
    of the program's parameters.

    Raise InputError for an unknown collective, an invalid argument, or a function that lacks required arguments.

    >>> from collectives import algorithm, recv, send, verify
    >>> @algorithm("broadcast", chunks=1)
    ... def hand_on(rank, world_size, root):
    ...     right, left = (rank + 1) % world_size, (rank - 1) % world_size
    ...     if rank != root:
    ...         yield recv(left, 0)
    ...     if right != root:
    ...         yield send(right, 0)
    >>> hand_on, verify(hand_on, world_size=4).messages
    (<Algorithm broadcast/hand_on>, 3)
    """
    spec = find_spec(collective)
    if name is not None:
        check_text("name", name, "my_ring")
    for rule, number, least in (("chunks", chunks, 1), ("scratch", scratch, 0)):
        if number is not None and not callable(number):
            check_whole_number(rule, number, least, instead=" or a function of world_size")

    def declare(function: Callable[Arguments, Returned]) -> Algorithm[Arguments, Returned]:
        label, first = name or function.__name__, first_arguments(spec)
        kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        if sum(parameter.kind in kinds for parameter in function_parameters(function)) < len(first):
            raise InputError(f"{collective}/{label}: the program must take the arguments ({', '.join(first)})")
        declared = Algorithm(spec, label, function, chunks, scratch)
        of_function: dict[str, Any] = {
            key: getattr(function, key) for key in WRAPPER_ASSIGNMENTS if hasattr(function, key)
        }
        vars(declared).update(of_function, __wrapped__=function)  # as for any decorated function
        return declared

    return declare  # type: ignore[return-value]  # mypy takes a type variable with a default for two


def first_arguments(spec: Spec) -> tuple[str, ...]:
    """Return the names of the arguments that every program for a collective takes first."""
    return ("rank", "world_size", "root") if spec.rooted else ("rank", "world_size")


def declared_in(module: ModuleType, source: Path | None = None) -> list[Algorithm]:
    """Return the algorithms that a module declares, in source order. Imported algorithms are not included."""
    return [
        replace(value, source=source)
        for value in vars(module).values()
        if isinstance(value, Algorithm) and value.__module__ == module.__name__
    ]


def auto(collective: str) -> Undecided:
    """Return the placeholder ``auto``. Raise InputError for an unknown collective.

    ``simcomm.selection.resolve_auto`` replaces the placeholder with the fastest algorithm.
    """
    return Undecided(find_spec(collective), AUTO, _undecided, chunks_rule=1)


def _undecided(*_: int) -> Programs:
    raise InputError(f"{AUTO!r} {UNDECIDED}")


def nccl(collective: str) -> NcclsOwn:
    """Return the algorithm ``nccl``, NCCL's own implementation. Raise InputError for an unknown collective."""
    spec = find_spec(collective)
    return NcclsOwn(spec, NCCL, _inside_nccl, chunks_rule=None if spec.has_parts else 1)


def _inside_nccl(*_: int) -> Programs:
    raise InputError(f'"{NCCL}" is NCCL\'s own implementation and cannot be simulated; use transport = "nccl"')
