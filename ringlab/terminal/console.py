"""The terminal as commands write to it: text of others comes out as text, never as commands to the terminal."""

from typing import Any

from rich.console import Console
from rich.text import Text

from ringlab.terminal.plain_text import make_printable

MOST_LETTERS = 5000  # of one text


class PlainConsole(Console):
    """A console that reads no markup, and shows control characters in place of obeying them; line ends stay."""

    def render_str(self, text: str, **options: Any) -> Text:
        """Return the text as it is to be shown; rich calls this for every text, also those in tables."""
        return super().render_str(make_printable(text, keep="\n", most=MOST_LETTERS), **{**options, "markup": False})


def make_console(stderr: bool = False, quiet: bool = False) -> Console:
    """Return the console on standard output, or on standard error."""
    return PlainConsole(stderr=stderr, quiet=quiet, highlight=False, markup=False, emoji=False)
