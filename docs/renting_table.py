"""Writes into docs/renting.md the stories with their figures, and what was measured of plans."""

import json
from datetime import date
from io import StringIO
from itertools import chain
from pathlib import Path
from textwrap import wrap

from page_marks import write_between
from rich.console import Console

from benchmarks.studies.published_rentals import Story, dollars_a_million, stories
from collectives.output_files import write_text
from ringlab.commands.plan import plan
from ringlab.table import print_parts

PAGE = Path(__file__).with_name("renting.md")
EXAMPLE = Path(__file__).with_name("rent_resnet50.toml")
COLUMNS = 100  # of the terminal in the example
WIDTH = 120  # characters of a line
RESULTS = Path(__file__).parent.parent / "benchmarks" / "results" / "renting.json"


def story_text(story: Story) -> str:
    """Return a story as a paragraph and a table."""
    lines = [*wrap(f"**{story.title}.** {story.cause}.", WIDTH), ""]
    lines += [f"| GPUs | published {story.unit} | predicted | times one GPU | most is lost to |"]
    lines += ["| --- | ---: | ---: | ---: | --- |"]
    for told in story.told:
        found = told.predicted
        name, share = found.bottleneck
        lost = f"{name}, {share:.0%} of a step" if share >= 0.005 else "-"
        published = "-" if told.published is None else f"{told.published:,g}"
        what = " ".join(filter(None, (str(told.gpus), told.what)))
        rate = f"{found.rate:,.1f}" if found.rate < 100 else f"{found.rate:,.0f}"
        lines.append(f"| {what} | {published} | {rate} | {found.efficiency * told.gpus:.2f} | {lost} |")
    told_by = f"Source: {story.source}." + (f" Assumed: {story.assumed}." if story.assumed else "")
    lines += ["", *wrap(told_by, WIDTH, break_long_words=False, break_on_hyphens=False)]
    return "\n".join(lines) + "\n"


def cheaper_run() -> str:
    """Return what a million sequences cost on both kinds of H100, as published and as predicted."""
    story = stories()[1]
    told = {one.what: one for one in story.told}
    costs = {
        gpu: [dollars_a_million(gpu, rate) for rate in (one.published or 0.0, one.predicted.rate)]
        for gpu, one in told.items()
    }
    rows = [f"| {gpu} | ${published:.2f} | ${predicted:.2f} |" for gpu, (published, predicted) in costs.items()]
    return (
        "\n".join(["| 8 x | dollars a million, published rate | predicted rate |", "| --- | ---: | ---: |", *rows])
        + "\n"
    )


def all_stories() -> str:
    """Return the stories one after the other."""
    parts = [story_text(story) for story in stories()]
    parts[1] += "\n" + cheaper_run()
    return "\n".join(parts)


def measured() -> str:
    """Return what benchmarks/renting.py measured last: seconds, and regrets."""
    found = json.loads(RESULTS.read_text())
    plan = found["plan"]
    lines = [
        f"{plan['choices']:,} choices are predicted and ranked in {plan['seconds']:.1f} s; it takes "
        f"{plan['cpu_seconds']:.1f} s of a core (`python benchmarks/renting.py`).",
        "",
        "| among | rate of one GPU | jobs | costs more than the best, mean | p90 | is the best |",
        "| --- | --- | ---: | ---: | ---: | ---: |",
    ]
    for among, ways in found["regret"].items():
        for way, one in ways.items():
            lines.append(
                f"| {among} | {way} | {one['jobs']} | {one['mean']:.1%} | {one['p90']:.1%} | {one['right']:.0%} |"
            )
    return "\n".join(lines) + "\n"


def chances() -> str:
    """Return how often what was said of two types of GPU came true, by benchmarks/renting.py."""
    lines = ["| said | in the mean | came true | comparisons |", "| --- | ---: | ---: | ---: |"]
    for one in json.loads(RESULTS.read_text())["chances"]:
        bounds = f"{one['low']:.0%} to {one['high']:.0%}"
        lines.append(f"| {bounds} | {one['said']:.1%} | {one['true']:.1%} | {one['comparisons']:,} |")
    return "\n".join(lines) + "\n"


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


def updated(page: str) -> str:
    """Return the page with stories and measurements as they are now."""
    parts = {"example": example(), "stories": all_stories(), "speed": measured(), "chances": chances()}
    for name, made in parts.items():
        page = write_between(page, name, made)
    return page


if __name__ == "__main__":
    write_text(PAGE, updated(PAGE.read_text(encoding="utf-8")))
