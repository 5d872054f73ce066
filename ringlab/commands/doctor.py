"""The command ``ringlab doctor``."""

from ringlab.shared.options import JsonOpt
from ringlab.shared.output import check_outputs, write_answer
from ringlab.shared.progress import TerminalProgress


def doctor(json_to: JsonOpt = None) -> None:
    """Look at what this machine can run, and what is missing."""
    from ringlab.answers import findings
    from ringlab.terminal.machine_tables import show_doctor

    check_outputs(json_to)
    write_answer(findings.doctor(TerminalProgress()), json_to, show_doctor)
