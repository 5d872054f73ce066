"""The command ``ringlab list``."""

from ringlab.terminal.options import JsonOpt
from ringlab.terminal.output import give


def list_all(json_to: JsonOpt = None) -> None:
    """List the algorithms, presets and scenarios that there are."""
    from ringlab.answers.listing import listing
    from ringlab.terminal.tables import show_listing

    found = listing()
    give(found, json_to, lambda console: show_listing(found, console))
