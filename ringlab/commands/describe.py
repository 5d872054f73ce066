"""``ringlab describe``: write a scenario for the machine that produced logs and topology files."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar

from typer import Argument, Option

from collectives.checks import check_sequence, check_text
from collectives.errors import InputError
from collectives.output_files import write_text
from collectives.quoting import make_printable
from ringlab.shared.answer import NOT_IN_JSON, Answer
from ringlab.shared.machines import machine_line, parse_keys
from ringlab.shared.options import JsonOpt, output_option
from ringlab.shared.output import check_outputs, deliver
from ringlab.table import Line, Part, Table
from simcomm.nccl.descriptions import System, with_unit
from simcomm.nccl.machine_files.described_machine import KeyValue, describe_machine
from simcomm.nccl.machine_files.files import read_facts
from simcomm.nccl.settings import VARIABLES

SIZES = '["8 KiB", "64 KiB", "512 KiB", "4 MiB", "32 MiB", "256 MiB", "1 GiB"]'


def command(
    files: Annotated[
        list[Path],
        Argument(metavar="FILE...", help="Logs, benchmark tables or topology files. The format is detected."),
    ],
    output: Annotated[Path, output_option("Scenario file to write; must end in .toml.", "FILE.toml")],
    system: Annotated[
        str | None,
        Option(
            "--system",
            metavar="NAME",
            help="Machine that the files describe, if they do not name it. `ringlab list hardware` lists the names.",
        ),
    ] = None,
    set_keys: Annotated[
        list[str] | None,
        Option(
            "--set",
            metavar="KEY=VALUE",
            help="Override a key of the machine's description, such as 'nic=100 GB/s'. Repeatable.",
        ),
    ] = None,
    json_to: JsonOpt = None,
) -> None:
    """Write a scenario for the machine that produced your logs and topology files. Guessed values are marked."""
    if output.suffix != ".toml":
        raise InputError(f"{output}: the output file must end in .toml")
    check_outputs(json_to, output)
    answer = describe(files, system=system, keys=set_keys or ())
    deliver(answer, json_to, lambda: write_text(output, answer.toml))


@dataclass(frozen=True)
class Description(Answer):
    """The result of ``ringlab describe``: the machine's description, the origin of each value, and a scenario file."""

    kind: ClassVar[str] = "description"

    keys: Mapping[str, Any]
    origins: Mapping[str, str]
    settings: Mapping[str, str]
    toml: str
    system: System = field(metadata=NOT_IN_JSON)

    def show(self) -> Iterator[Part]:
        rows = [[key, str(value), self.origins[key]] for key, value in self.keys.items()]
        yield Table("The machine", ["key", "value", "origin"], rows, words=3)
        if self.settings:
            variables = ", ".join(f"{name}={value}" for name, value in self.settings.items())
            yield Line(f"NCCL's variables: {variables}", wrap=True)


def describe(files: Sequence[Path | str], *, system: str | None = None, keys: Sequence[str] = ()) -> Description:
    """Describe the machine that wrote the logs or topology files, including its P2P and GPUDirect support.

    ``system`` names the machine if the files do not. ``keys`` such as ``nodes=2`` override keys of the description.
    Raise InputError if a file, ``system`` or a key is invalid, or if the description remains incomplete.

    >>> describe(["topo.txt", "system.xml"]).system.gpus  # doctest: +SKIP
    8
    """
    facts = read_facts(check_sequence("files", files, of="files"))
    named = {} if system is None else machine_line(check_text("system", system, "dgx-h100"))
    key_values = parse_keys(check_sequence("keys", keys, of="texts like 'nodes=2'"))
    machine = describe_machine(facts, {**named, **key_values})
    if machine.missing:
        raise InputError(f"{files[0]}: {machine.missing}")
    observable = {"p2p": machine.system().link in ("pcie", "bridge"), "gdr": machine.system().nodes > 1}
    observed = {key: value for key, value in machine.seen.items() if observable.get(key, True)}
    known = {**machine.keys, **observed}
    line = {key: with_unit(key, value.value) for key, value in known.items()}
    described = machine.system(**{key: value.value for key, value in observed.items()})
    settings = {name: value for name, value in facts.settings().items() if name in VARIABLES.values()}
    origins = {key: _origin(value) for key, value in known.items()}
    return Description(line, origins, settings, _toml(line, origins, settings, files), described)


def _origin(value: KeyValue) -> str:
    if value.place is None:
        return value.why if value.why.startswith(("guess", "set by you")) else f"guess: {value.why}"
    return str(value.place)


def _toml(
    line: Mapping[str, Any], origins: Mapping[str, str], settings: Mapping[str, str], files: Sequence[Path | str]
) -> str:
    named = make_printable(", ".join(Path(file).name for file in files))
    parts = [
        f"# Described by `ringlab describe` from {named}.",
        "# Each key has its origin as a comment; guesses are marked.",
        "",
    ]
    parts += [f"title = {_value(f'Described from {named}')}", "", "[cluster.system]"]
    parts += [f"{key} = {_value(value)}  # {make_printable(origins[key])}" for key, value in line.items()]
    if settings:
        parts += ["", "[nccl]", *(f"{name} = {_value(value)}" for name, value in settings.items())]
    parts += ["", "[collective]", 'name = "all_reduce"', 'algorithms = ["nccl"]', f"sizes = {SIZES}", ""]
    return "\n".join(parts)


def _value(value: Any) -> str:
    """Return a value in TOML syntax.

    >>> _value(True), _value(12.5), _value('A "B"')
    ('true', '12.5', '"A \\\\"B\\\\""')
    """
    return json.dumps(value if isinstance(value, int | float) else make_printable(str(value)), ensure_ascii=False)
