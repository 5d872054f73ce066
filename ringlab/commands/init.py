"""``ringlab init``: copy an example or a built-in scenario for editing."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from collectives.checks import check_path, check_text
from collectives.errors import InputError
from collectives.input_files import read_text
from collectives.output_files import write_text
from ringlab.shared.answer import Answer
from ringlab.shared.options import output_option
from ringlab.shared.output import check_outputs, make_console
from ringlab.table import Line, Part, Table, print_parts
from scenarios.toml_files import beginnings, describe_beginning, find_beginning


def command(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="Example or built-in scenario to copy. Default: list all.")
    ] = None,
    output: Annotated[
        Path | None, output_option("Output file. Default: the original name, in the current directory.")
    ] = None,
) -> None:
    """Copy an example or a built-in scenario for editing. Without a name, list them."""
    print_parts(init(name, output).show(), make_console())


@dataclass(frozen=True, repr=False)
class Beginnings(Answer):
    """The result of ``ringlab init``: the files that it wrote. The list is empty if it only listed the names."""

    kind = "init"

    files: tuple[str, ...] = ()
    usage: tuple[str, ...] = ()  # commands that use the files

    def show(self) -> Iterator[Part]:
        if not self.files:
            rows = [[name, describe_beginning(files)] for name, files in beginnings().items()]
            yield Table("Files to begin with", ["name", "about"], rows, words=2)
            yield "`ringlab init NAME` writes one to the current directory."
            return
        yield Line(f"written: {', '.join(self.files)}")
        if self.usage:
            yield "Next:"
        for line in self.usage:
            yield Line(f"  {line}")


def init(name: str | None = None, output: Path | str | None = None) -> Beginnings:
    """Copy an example or a built-in scenario for editing. Without a name, only list the names.

    If several files are copied, ``output`` is the path of the first, and the others are written next to it. Raises
    InputError if the name is unknown, if ``output`` is set without a name, or if a file already exists.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     init("llama-fsdp", f"{folder}/mine.toml").usage[0].split()[-2:]
    ['--devices', '8,16']
    """
    if name is None:
        if output is not None:
            raise InputError(f"-o {output} requires NAME, the example to copy; `ringlab init` lists all")
        return Beginnings()
    sources = find_beginning(check_text("name", name, "llama-fsdp"))
    first = Path(sources[0].name) if output is None else check_path("output", output)
    targets = [first, *(first.with_suffix(source.suffix) for source in sources[1:])]
    for target in targets:
        if target.exists():
            raise InputError(f"{target} already exists; choose another file with -o")
    check_outputs(*targets)
    texts = [read_text(source) for source in sources]
    for target, text in zip(targets, texts, strict=True):
        write_text(target, text)
    commands = [line for line in (line.lstrip("# ") for line in texts[0].splitlines()) if line.startswith("ringlab ")]
    usage = [re.sub(f"(examples/)?{re.escape(sources[0].name)}", lambda _: str(first), line) for line in commands]
    usual = [f"ringlab predict {first}"] * (first.suffix == ".toml")
    return Beginnings(tuple(map(str, targets)), tuple(usage or usual))
