"""The command ``ringlab plan``."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from ringlab.shared.options import ExplainOpt, JsonOpt, ScenarioArg, SetOpt
from ringlab.shared.output import check_outputs, write_answer
from ringlab.shared.progress import TerminalProgress
from ringlab.shared.signals import INTERRUPTED


def plan(
    scenario: ScenarioArg,
    target_samples: Annotated[
        float | None, typer.Option(metavar="N", help="Samples, or tokens, to train on in all; else one epoch's.")
    ] = None,
    budget: Annotated[float | None, typer.Option(metavar="DOLLARS", help="What it may cost.")] = None,
    deadline: Annotated[str | None, typer.Option(metavar="TIME", help="When it has to be done: 12h, '3 days'.")] = None,
    spot: Annotated[bool, typer.Option("--spot", help="Spot machines too, where their price is known.")] = False,
    prices: Annotated[
        Path | None, typer.Option(metavar="FILE.csv", help="Prices in the columns of prices.csv, not the snapshot.")
    ] = None,
    keep: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Keep each predicted rate there, and do not predict it again.")
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw time against money: .png, .svg, .pdf.")
    ] = None,
    explain: ExplainOpt = False,
    json_to: JsonOpt = None,
    set_keys: SetOpt = None,
) -> None:
    """Choose the cheapest machines to rent for a training: time against money, how sure, and what to measure first."""
    from ringlab.answers.planning import plan as make_plan
    from ringlab.terminal.plan_tables import show_plan
    from viz import check_file

    if plot is not None:
        check_file(plot, "a plan")
    check_outputs(json_to, plot, keep)
    answer = make_plan(
        scenario,
        *(set_keys or ()),
        target_samples=target_samples,
        budget=budget,
        deadline=deadline,
        spot=spot,
        prices=prices,
        kept=keep,
        progress=TerminalProgress(),
    )
    show = partial(show_plan, explain=explain)
    write_answer(answer, json_to, show, *([partial(answer.draw, plot)] if plot is not None else []))
    if answer.interrupted:
        raise typer.Exit(INTERRUPTED)
