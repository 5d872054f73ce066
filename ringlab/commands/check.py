"""The command ``ringlab check``."""

from typing import Annotated

import typer

from ringlab.shared.options import JsonOpt
from ringlab.shared.output import check_outputs, write_answer
from ringlab.shared.progress import TerminalProgress
from ringlab.shared.signals import INTERRUPTED


def check(
    algorithms: Annotated[str, typer.Argument(metavar="FILE.py[:NAME]|COLLECTIVE/NAME|library", help="Yours or ours.")],
    world_sizes: Annotated[str, typer.Option(metavar="LIST", help="Such as 1-8,16.")] = "1-33",
    json_to: JsonOpt = None,
) -> None:
    """Prove an algorithm right at many world sizes, or say what is wrong; its cost stands beside the least possible.

    ^C keeps what is done.
    """
    from ringlab.answers import proofs
    from ringlab.terminal.check_tables import show_check

    check_outputs(json_to)
    answer = proofs.check(algorithms, world_sizes, progress=TerminalProgress())
    write_answer(answer, json_to, show_check)
    if answer.interrupted:
        raise typer.Exit(INTERRUPTED)
    if not answer.is_correct:
        raise typer.Exit(1)
