"""The terminal as commands write to it: text of others comes out as text, never as commands to the terminal."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.text import Text

from collectives.quoting import make_printable
from ringlab.table import MOST_LETTERS


@contextmanager
def naming_standard_output() -> Iterator[None]:
    """Within the context, have an OSError name standard output, unless it says that its reader is gone."""
    try:
        yield
    except OSError as error:
        if error.errno != errno.EPIPE:
            error.filename = "standard output"
        raise


class PlainConsole(Console):
    """A console that reads no markup, and shows control characters in place of obeying them; line ends stay."""

    def render_str(self, text: str, **options: Any) -> Text:
        """Return the text as it is to be shown; rich calls this for every text, also those in tables."""
        return super().render_str(make_printable(text, keep="\n", most=MOST_LETTERS), **{**options, "markup": False})

    def on_broken_pipe(self) -> None:
        """Raise the error, where rich would end the process, and with it what is still to be written to files."""
        raise  # rich calls this while it handles the error

    def _check_buffer(self) -> None:
        """Write what is to be shown. A standard error that takes nothing any more is left alone: it has no answers."""
        try:
            with naming_standard_output():
                super()._check_buffer()
        except OSError:
            if not self.stderr:
                raise
            self.quiet = True
            del self._buffer[:]


def make_console(stderr: bool = False, quiet: bool = False) -> Console:
    """Return the console on standard output, or on standard error."""
    return PlainConsole(stderr=stderr, quiet=quiet, highlight=False, markup=False, emoji=False)
