"""The command ``ringlab check``."""

from typing import Annotated

import typer

from ringlab.terminal.options import JsonOpt
from ringlab.terminal.output import give


def check(
    algorithms: Annotated[str, typer.Argument(metavar="FILE.py[:NAME]|COLLECTIVE/NAME|library", help="Yours or ours.")],
    world_sizes: Annotated[str, typer.Option(metavar="LIST", help="Such as 1-8,16.")] = "1-33",
    json_to: JsonOpt = None,
) -> None:
    """Prove an algorithm right at many world sizes, or say what is wrong; its cost stands beside the least possible."""
    from ringlab.answers.proofs import check as prove
    from ringlab.answers.proofs import chosen, parse_world_sizes
    from ringlab.terminal.tables import show_verdicts

    sizes = parse_world_sizes(world_sizes)
    verdicts = [prove(algorithm, sizes) for algorithm in chosen(algorithms)]
    answer = {"schema_version": 1, "kind": "check", "algorithms": [verdict.as_entry() for verdict in verdicts]}
    give(answer, json_to, lambda console: show_verdicts(verdicts, console))
    if any(verdict.problem for verdict in verdicts):
        raise typer.Exit(1)
