"""The tables of ``accuracy --here``."""

from rich.console import Console

from collectives.units import format_size
from ringlab.answers.accuracy_here import AccuracyHere, Errors
from ringlab.emulated.rows import WITHIN
from ringlab.table import NOTHING, Row, make_table, show_sentences, time_unit

SHOWN = 12  # of the rows that are off by most


def show_accuracy_here(answer: AccuracyHere, console: Console, explain: bool = False) -> None:
    """Print the errors of all rows, by algorithm, size and scenario, and the rows that are off by most."""
    headings = ["rows", "median", "nine in ten", "worst", f"within {WITHIN:.0%}", "as stated"]
    for key, groups in answer.views.items():
        title = "Emulated clusters: errors" if key == "all" else f"By {key}"
        rows = [[name, *_cells(errors)] for name, errors in groups.items()]
        console.print(make_table(title, ["" if key == "all" else key, *headings], rows, words=1))
    worst = sorted((row for row in answer.rows if row.error is not None), key=lambda row: -abs(row.error or 0.0))
    worst = worst[:SHOWN]
    unit, form = time_unit(seconds for row in worst for seconds in (row.predicted_s, row.measured_s))
    rows = [
        [
            row.scenario,
            row.what,
            NOTHING if row.bytes is None else format_size(row.bytes),
            *map(form, (row.predicted_s or 0.0, row.measured_s)),
            f"{row.error or 0.0:+.0%}",
        ]
        for row in worst
    ]
    headings = ["scenario", "what", "size", f"predicted\n({unit})", f"measured\n({unit})", "error"]
    console.print(make_table("Off by most", headings, rows, words=2))
    refused = [f"{name} was not measured: {reason}" for name, reason in answer.refused.items()]
    errors = (
        f"{len(answer.rows)} rows in {answer.seconds:.0f} s. An error is |predicted / measured - 1|; as stated: "
        "within the uncertainty of the prediction, which should hold for four of five."
    )
    show_sentences(console, [*refused, errors, *filter(None, [answer.busy])], explain=explain, wrap=False)


def _cells(errors: Errors) -> Row:
    shares = (errors.median, errors.p90, errors.worst)
    return [
        str(errors.rows),
        *(f"{100 * share:.1f} %" for share in shares),
        f"{errors.within:.0%}",
        NOTHING if errors.as_stated is None else f"{errors.as_stated:.0%}",
    ]
