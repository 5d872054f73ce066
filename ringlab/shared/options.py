"""The arguments and options that several commands share, and options in groups: a dataclass, each field an option."""

from collections.abc import Callable
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from functools import wraps
from inspect import Parameter, signature
from pathlib import Path
from typing import Annotated, Any, get_origin, get_type_hints

import typer


def complete_scenario(incomplete: str) -> list[str]:
    """Return what a shell offers for a scenario: shipped ones, folders and files of TOML that begin so.

    >>> complete_scenario("two-")
    ['two-p5', 'two-racks']
    """
    from scenarios.toml_files import shipped  # a command is read without

    there = sorted(Path().glob(f"{incomplete}*")) if not Path(incomplete).is_absolute() else []
    files = [f"{path}/" if path.is_dir() else str(path) for path in there if path.is_dir() or path.suffix == ".toml"]
    return [*(name for name in shipped() if name.startswith(incomplete)), *files]


ScenarioArg = Annotated[
    str,
    typer.Argument(
        metavar="SCENARIO",
        help="Scenario file, or name of a built-in scenario.",
        autocompletion=complete_scenario,
    ),
]
SetOpt = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override a key of the scenario. Repeatable.")
]
JsonOpt = Annotated[
    str | None, typer.Option("--json", metavar="FILE", help="Write the results as JSON. Use - for standard output.")
]
TraceOpt = Annotated[
    Path | None,
    typer.Option("--trace", metavar="FILE", help="Write a trace of the last algorithm at the largest size."),
]
CalibrationOpt = Annotated[
    Path | None,
    typer.Option("--calibration", metavar="FILE", help="Calibration file to use instead of the cached one."),
]
TIMEOUT_S = 600.0  # unless another is given
TimeoutOpt = Annotated[
    float,
    typer.Option(
        min=1,
        metavar="SECONDS",
        help="Stop a run after this many seconds, and a training after this long without a step.",
    ),
]
BackendOpt = Annotated[
    str, typer.Option(metavar="gloo|nccl", help="Backend of torch.distributed: gloo (CPUs) or nccl (GPUs).")
]
EmulateOpt = Annotated[
    bool, typer.Option("--emulate", help="Emulate the scenario's network on this machine and run on it.")
]
CheckOpt = Annotated[
    bool,
    typer.Option("--check", help="With [training.parallelism]: verify that the losses match those of a single rank."),
]


def drawing(what: str, about: str, *names: str, metavar: str = "FILE") -> Any:
    """Return the option of a file in which ``what`` is drawn; another suffix is refused before anything is read."""

    def check(path: Path | None) -> Path | None:
        if path is None:
            return None
        from viz.file_types import check_file  # commands that draw nothing do without

        return check_file(path, what)

    return typer.Option(*names, metavar=metavar, help=about, callback=check)


ReportOpt = Annotated[Path | None, drawing("a report", "Write an HTML report with figures.", metavar="FILE.html")]
ExplainOpt = Annotated[bool, typer.Option("--explain", help="Show all notes below the tables.")]


@dataclass(frozen=True)
class RealOptions:
    """How ranks of this machine are run."""

    backend: BackendOpt = "gloo"
    calibration: CalibrationOpt = None
    emulate: EmulateOpt = False
    timeout: TimeoutOpt = TIMEOUT_S


@dataclass(frozen=True)
class SizeOptions:
    """The length of a transformer's samples, and on how many tokens it is trained."""

    sequence: Annotated[
        int | None,
        typer.Option(metavar="N", help="Sequence length in tokens. Default: training.sequence, or the model's."),
    ] = None
    target_tokens: Annotated[
        float | None,
        typer.Option(metavar="N", help="Total number of tokens to train on. Default: plan.target_tokens."),
    ] = None

    @property
    def overrides(self) -> tuple[str, ...]:
        """The keys of the scenario that they override.

        >>> SizeOptions(sequence=2048).overrides
        ('training.sequence=2048',)
        """
        given = {"training.sequence": self.sequence, "plan.target_tokens": self.target_tokens}
        return tuple(f"{key}={value}" for key, value in given.items() if value is not None)


@dataclass(frozen=True)
class RunOptions:
    """What a run is checked against, and what of it is written."""

    check: CheckOpt = False
    trace: TraceOpt = None


@dataclass(frozen=True)
class AnswerOptions:
    """How much of an answer is said, and where its JSON is written."""

    explain: ExplainOpt = False
    json_to: JsonOpt = None


def with_groups(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command that has, in place of each parameter that is a dataclass, the options that its fields say.

    A field is an option where its type says how it is called; the others keep their defaults.

    >>> from dataclasses import dataclass
    >>> @dataclass
    ... class Size:
    ...     width: Annotated[int, "--width"] = 2
    >>> @with_groups
    ... def draw(file: str, size: Size) -> None:
    ...     print(file, size)
    >>> [*signature(draw).parameters]
    ['file', 'width']
    >>> draw(file="a", width=3)
    a Size(width=3)
    """
    asked = signature(command, eval_str=True)
    annotations = {name: one.annotation for name, one in asked.parameters.items()}
    groups: dict[str, Any] = {name: group for name, group in annotations.items() if is_dataclass(group)}
    options = {name: _options(group) for name, group in groups.items()}

    @wraps(command)
    def call(**given: Any) -> None:
        made = {
            name: group(**{one.name: given.pop(one.name) for one in options[name]}) for name, group in groups.items()
        }
        command(**given, **made)

    parameters = [
        parameter.replace(kind=Parameter.KEYWORD_ONLY)
        for name, one in asked.parameters.items()
        for parameter in options.get(name, [one])
    ]
    call.__signature__ = asked.replace(parameters=parameters)  # type: ignore[attr-defined]
    call.__annotations__ = {one.name: one.annotation for one in parameters}
    return call


def _options(group: Any) -> list[Parameter]:
    """Return the fields of a dataclass that are options, as parameters of a command, which are given by name."""
    hints = get_type_hints(group, include_extras=True)
    return [
        Parameter(one.name, Parameter.KEYWORD_ONLY, default=_default(one), annotation=hints[one.name])
        for one in fields(group)
        if get_origin(hints[one.name]) is Annotated
    ]


def _default(one: "Field[Any]") -> Any:
    if one.default_factory is not MISSING:
        return one.default_factory()
    return Parameter.empty if one.default is MISSING else one.default
