"""The command ``ringlab list``."""

from ringlab.shared.options import JsonOpt
from ringlab.shared.output import check_outputs, write_answer


def list_all(json_to: JsonOpt = None) -> None:
    """List the algorithms, presets, models and scenarios that there are."""
    from ringlab.answers.names import list_names
    from ringlab.terminal.name_tables import show_names

    check_outputs(json_to)
    write_answer(list_names(), json_to, show_names)
