"""The table of ``compare --devices``: steps on emulated hosts, predicted from one rank, beside what was measured."""

from rich.console import Console

from collectives.units import format_time
from ringlab.answers.emulated_rows import WITHIN
from ringlab.answers.profiled_rank import STEP, ProfiledRank
from ringlab.table import NOTHING, make_table, show_sentences


def show_profiled_rank(answer: ProfiledRank, console: Console, explain: bool = False) -> None:
    """Print a row a training and number of hosts, and what the errors come to."""
    rows = [
        [
            row.what.removesuffix(STEP),
            str(row.world_size),
            NOTHING if row.predicted_s is None else format_time(row.predicted_s),
            format_time(row.measured_s),
            NOTHING if row.error is None else f"{100 * row.error:+.1f} %",
        ]
        for row in answer.steps
    ]
    console.print(make_table(answer.title, ["gradient sync", "hosts", "predicted", "measured", "error"], rows, words=1))
    errors = answer.errors
    said = (
        f"Steps are off by {100 * errors.median:.1f} % in the middle, {100 * errors.worst:.1f} % at most; "
        f"{errors.within:.0%} within {WITHIN:.0%}."
    )
    refused = [f"{name} hosts were not measured: {reason}" for name, reason in answer.found.refused.items()]
    computing = f"Computing: {answer.profile}, measured on {answer.device}; messages: a pair of emulated hosts."
    last = [computing, *filter(None, [answer.found.busy])]
    show_sentences(console, [*refused, said, *last], explain=explain, wrap=False)
