"""Writes the result of a command, first to the terminal, then to the requested files."""

import errno
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.text import Text

from collectives.errors import InputError
from collectives.input_files import check_input
from collectives.output_files import check_output, write_text
from collectives.quoting import make_printable
from collectives.variables import is_first_rank
from ringlab.shared.answer import Answer, AnswerRecord, shorten
from ringlab.shared.failures import describe_system_error, is_reader_gone
from ringlab.shared.signals import INTERRUPTED
from ringlab.table import MOST_LETTERS, print_parts


@contextmanager
def naming_standard_output() -> Iterator[None]:
    """Set the file name of an OSError in the block to "standard output", except for a broken pipe."""
    try:
        yield
    except OSError as error:
        if error.errno != errno.EPIPE:
            error.filename = "standard output"
        raise


class PlainConsole(Console):
    """A rich console that prints markup as it is, and escapes control characters other than line ends."""

    def render_str(self, text: str, **options: Any) -> Text:
        """Return the text to show. rich calls this for every text, also in tables."""
        return super().render_str(make_printable(text, keep="\n", most=MOST_LETTERS), **{**options, "markup": False})

    def on_broken_pipe(self) -> None:
        """Raise the error again, because rich would exit before the files are written."""
        raise  # rich calls this in its except block

    def _check_buffer(self) -> None:
        """Write the buffer. Errors of standard error are ignored, because results are never written there."""
        try:
            with naming_standard_output():
                super()._check_buffer()
        except OSError:
            if not self.stderr:
                raise
            self.quiet = True
            del self._buffer[:]


def make_console(stderr: bool = False, quiet: bool = False) -> Console:
    return PlainConsole(stderr=stderr, quiet=quiet, highlight=False, markup=False, emoji=False)


def check_outputs(*files: Path | str | None, reads: Path | None = None) -> None:
    """Raise InputError unless all files can be written and no two are the same. None means no file.

    Call this before a long computation. ``reads`` is an input file that is read later. ``-`` is standard output, which
    only the JSON may use.
    """
    if reads is not None:
        check_input(reads)
    if not is_first_rank():
        return
    named: dict[str, Path | str] = {}
    for file in files:
        if file is None or file == "-":
            continue
        if file == Path("-"):
            raise InputError("- (standard output) is only supported by --json; specify a file")
        check_output(file)
        real = os.path.realpath(file)
        if real in named and not Path(real).is_char_device():
            raise InputError(f"{file} and {named[real]} are the same file; use different files")
        named[real] = file


def deliver(answer: Answer, json_to: str | None, *writers: Callable[[], object]) -> None:
    """Print a command's result, write its JSON, and call ``writers``. If ``json_to`` is ``-``, print only the JSON.

    Under a launcher, only rank 0 writes. If an output fails, the others are still written before OSError is raised. If
    the command was interrupted, exit with status 130.
    """
    if is_first_rank():
        shown = [] if json_to == "-" else [lambda: print_parts(answer.show(), make_console())]
        write_files(*shown, partial(write_json, answer, json_to), *writers)
    if answer.interrupted:
        raise typer.Exit(INTERRUPTED)


def write_files(*writers: Callable[[], object]) -> None:
    """Call all writers. Then raise the first OSError, with the other errors as notes.

    A broken pipe is raised only if it is the only error, because it is not reported to the user.
    """
    errors = []
    for write in writers:
        try:
            write()
        except OSError as error:
            errors.append(error)
    errors.sort(key=is_reader_gone)
    for other in errors[1:]:
        if not is_reader_gone(other):
            errors[0].add_note(describe_system_error(other))
    if errors:
        raise errors[0]


def write_json(answer: AnswerRecord, json_to: str | None) -> None:
    """Write the JSON to the file ``json_to``, where ``-`` is standard output. Raise InputError for infinity and NaN."""
    if json_to is None:
        return
    try:
        text = json.dumps(shorten(answer.to_dict()), indent=2, allow_nan=False)
    except ValueError as error:
        why = "a result is not a finite number; check the rates and times for unrealistic values"
        raise InputError(why) from error
    if json_to == "-":
        with naming_standard_output():
            typer.echo(text)
    else:
        write_text(json_to, text + "\n")
