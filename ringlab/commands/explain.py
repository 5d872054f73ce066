"""The command ``ringlab explain``."""

from pathlib import Path
from typing import Annotated

import typer

from ringlab.shared.console import make_console
from ringlab.shared.loading import load_scenario
from ringlab.shared.options import JsonOpt, ScenarioArg, SetOpt
from ringlab.shared.output import check_outputs, write_answer
from ringlab.shared.progress import TerminalProgress


def explain(
    scenario: ScenarioArg,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="FILE", help="Draw the rings and trees: .png, .svg or .pdf."),
    ] = None,
    json_to: JsonOpt = None,
    set_keys: SetOpt = None,
) -> None:
    """Say what NCCL would pick at each size and why: its topology, channels, rings and trees, and every candidate."""
    from ringlab.answers import explanation
    from ringlab.terminal.explanation_tables import show_explanation
    from viz import check_file

    if output is not None:
        check_file(output, "a picture of rings")
    loaded = load_scenario(scenario, *(set_keys or ()))
    check_outputs(json_to, output)
    answer = explanation.explain(loaded, TerminalProgress())

    def draw() -> None:
        if output is not None:
            answer.draw(output)
            make_console(quiet=json_to == "-").print(f"The picture: {output}", soft_wrap=True)

    write_answer(answer, json_to, show_explanation, draw)
