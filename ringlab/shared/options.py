"""Arguments and options that several commands share, and dataclasses whose fields become options."""

from collections.abc import Callable
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from functools import wraps
from inspect import Parameter, signature
from pathlib import Path
from typing import Annotated, Any, get_origin, get_type_hints

import typer


def complete_scenario(incomplete: str) -> list[str]:
    """Return the built-in scenarios, folders and TOML files whose names start with ``incomplete``."""
    from scenarios.toml_files import shipped  # only completion imports this

    paths = sorted(Path().glob(f"{incomplete}*")) if not Path(incomplete).is_absolute() else []
    files = [f"{path}/" if path.is_dir() else str(path) for path in paths if path.is_dir() or path.suffix == ".toml"]
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
    typer.Option(
        "--trace",
        metavar="FILE",
        help="Write a trace of the last algorithm at its largest size. Without collectives: of the last training run.",
    ),
]
CalibrationOpt = Annotated[
    Path | None,
    typer.Option("--calibration", metavar="FILE", help="Calibration file to use instead of the cached one."),
]
TIMEOUT_S = 600.0  # the default
TimeoutOpt = Annotated[float, typer.Option(min=1, metavar="SECONDS", help="Stop after this many seconds.")]
BackendOpt = Annotated[
    str, typer.Option(metavar="gloo|nccl", help="Backend of torch.distributed: gloo (CPUs) or nccl (GPUs).")
]
EmulateOpt = Annotated[bool, typer.Option("--emulate", help="Run on the scenario's network, emulated on this machine.")]


def drawing(subject: str, about: str, *names: str, metavar: str = "FILE") -> Any:
    """Return the typer option for a picture file. ``subject`` is a key of ``viz.file_types.FILE_TYPES``."""

    def check(path: Path | None) -> Path | None:
        if path is None:
            return None
        from viz.file_types import check_file  # only needed to draw

        return check_file(path, subject)

    return typer.Option(*names, metavar=metavar, help=about, callback=check)


def output_option(about: str, metavar: str = "FILE") -> Any:
    """Return the typer option ``-o`` of a command. ``about`` is its help text."""
    return typer.Option("-o", "--output", metavar=metavar, help=about)


ReportOpt = Annotated[Path | None, drawing("a report", "Write an HTML report with figures.", metavar="FILE.html")]


def option(default: Any, *names: str, **settings: Any) -> Any:
    """Return a dataclass field that ``with_groups`` turns into an option, with the settings of ``typer.Option``.

    ``names`` are the option's names. The default is the field's name: ``--log-dir`` for ``log_dir``.
    """
    metadata = {"names": names, "settings": settings}
    if default == []:
        return field(default_factory=list, metadata=metadata)
    return field(default=default, metadata=metadata)


@dataclass(frozen=True)
class RealOptions:
    """The options of ``run`` and ``compare``, which start real ranks."""

    backend: BackendOpt = "gloo"
    calibration: CalibrationOpt = None
    emulate: EmulateOpt = False
    timeout: float = option(
        TIMEOUT_S,
        help="Stop after this many seconds; for a training run, after this many seconds without a step.",
        min=1,
        metavar="SECONDS",
    )


@dataclass(frozen=True)
class SizeOptions:
    """The options for the sequence length and the number of tokens of a training."""

    sequence: int | None = option(
        None, help="Sequence length in tokens. Default: training.sequence, or the model's length.", metavar="N"
    )
    target_tokens: float | None = option(
        None, help="Total number of tokens to train on. Default: plan.target_tokens.", metavar="N"
    )

    @property
    def overrides(self) -> tuple[str, ...]:
        values = {"training.sequence": self.sequence, "plan.target_tokens": self.target_tokens}
        return tuple(f"{key}={value}" for key, value in values.items() if value is not None)


def with_groups(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command whose dataclass parameters are replaced by the options in their fields.

    Fields made by ``option`` and annotated fields become options. Other fields keep their defaults.
    """
    command_signature = signature(command, eval_str=True)
    annotations = {name: parameter.annotation for name, parameter in command_signature.parameters.items()}
    groups: dict[str, Any] = {name: group for name, group in annotations.items() if is_dataclass(group)}
    options = {name: _options(group) for name, group in groups.items()}

    @wraps(command)
    def call(**values: Any) -> None:
        made = {
            name: group(**{each.name: values.pop(each.name) for each in options[name]})
            for name, group in groups.items()
        }
        command(**values, **made)

    parameters = [
        each.replace(kind=Parameter.KEYWORD_ONLY)
        for name, parameter in command_signature.parameters.items()
        for each in options.get(name, [parameter])
    ]
    call.__signature__ = command_signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    call.__annotations__ = {each.name: each.annotation for each in parameters}
    return call


def _options(group: Any) -> list[Parameter]:
    hints = get_type_hints(group, include_extras=True)
    parameters = []
    for each in fields(group):
        annotation = hints[each.name]
        if "settings" in each.metadata:
            names = each.metadata["names"] or (f"--{each.name.replace('_', '-')}",)
            annotation = Annotated[annotation, typer.Option(*names, **each.metadata["settings"])]
        if get_origin(annotation) is Annotated:
            default = [] if each.default is MISSING else each.default
            parameters.append(Parameter(each.name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation))
    return parameters
