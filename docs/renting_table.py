"""Writes into docs/renting.md the stories with their figures, and what was measured of plans."""

from datetime import date
from io import StringIO
from itertools import chain
from pathlib import Path
from textwrap import wrap

from page_writer import Parts, read_results, table
from rich.console import Console

from benchmarks.studies.published_rentals import Story, dollars_a_million, stories
from ringlab.commands.predicting.plan import plan
from ringlab.table import print_parts

EXAMPLE = Path(__file__).parents[1] / "examples" / "rent_resnet50.toml"
COLUMNS = 100  # of the terminal in the example
WIDTH = 120  # characters of a line


def story_text(story: Story) -> str:
    """Return a story as a paragraph and a table."""
    rows = []
    for told in story.told:
        found = told.predicted
        name, share = found.bottleneck
        lost = f"{name}, {share:.0%} of a step" if name != "compute" else "-"
        published = "-" if told.published is None else f"{told.published:,g}"
        what = " ".join(filter(None, (str(told.gpus), told.what)))
        rate = f"{found.rate:,.1f}" if found.rate < 100 else f"{found.rate:,.0f}"
        rows.append([what, published, rate, f"{found.efficiency * told.gpus:.2f}", lost])
    made = table(f"GPUs | published {story.unit}: | predicted: | times one GPU: | most is lost to", rows)
    told_by = f"Source: {story.source}." + (f" Assumed: {story.assumed}." if story.assumed else "")
    said, source = (
        f"**{story.title}.** {story.cause}.",
        wrap(told_by, WIDTH, break_long_words=False, break_on_hyphens=False),
    )
    return "\n".join([*wrap(said, WIDTH), "", made, *source]) + "\n"


def cheaper_run() -> str:
    """Return what a million sequences cost on both kinds of H100, as published and as predicted."""
    story = stories()[1]
    told = {one.what: one for one in story.told}
    costs = {
        gpu: [dollars_a_million(gpu, rate) for rate in (one.published or 0.0, one.predicted.rate)]
        for gpu, one in told.items()
    }
    rows = [[gpu, *(f"${cost:.2f}" for cost in both)] for gpu, both in costs.items()]
    return table("8 x | dollars a million, published rate: | predicted rate:", rows)


def all_stories() -> str:
    """Return the stories one after the other."""
    parts = [story_text(story) for story in stories()]
    parts[1] += "\n" + cheaper_run()
    return "\n".join(parts)


def measured() -> str:
    """Return what benchmarks/renting.py measured last: seconds, and regrets."""
    found = read_results("renting")
    plan = found["plan"]
    rows = [
        [among, way, one["jobs"], f"{one['mean']:.1%}", f"{one['p90']:.1%}", f"{one['right']:.0%}"]
        for among, ways in found["regret"].items()
        for way, one in ways.items()
    ]
    return (
        f"{plan['choices']:,} choices are predicted and ranked in {plan['seconds']:.1f} s; it takes "
        f"{plan['cpu_seconds']:.1f} s of a core (`python benchmarks/renting.py`).\n\n"
    ) + table("among | rate of one GPU | jobs: | costs more than the best, mean: | p90: | is the best:", rows)


def chances() -> str:
    """Return how often what was said of two types of GPU came true, by benchmarks/renting.py."""
    rows = [
        [
            f"{one['low']:.0%} to {one['high']:.0%}",
            f"{one['said']:.1%}",
            f"{one['true']:.1%}",
            f"{one['comparisons']:,}",
        ]
        for one in read_results("renting")["chances"]
    ]
    return table("said | in the mean: | came true: | comparisons:", rows)


def example() -> str:
    """Return what a plan of the page's example says, as the command prints it."""
    with StringIO() as file:
        answer = plan(EXAMPLE, today=date(2026, 9, 1))
        print_parts(answer.show(), Console(file=file, width=COLUMNS), explain=True)
        lines = [line.rstrip() for line in file.getvalue().splitlines()]
    return (
        "\n".join(
            [
                "```",
                *chain.from_iterable(wrap(line, WIDTH) or [""] if len(line) > WIDTH else [line] for line in lines),
                "```",
            ]
        )
        + "\n"
    )


PARTS: Parts = {
    "docs/renting.md": {"example": example, "stories": all_stories, "speed": measured, "chances": chances},
}
