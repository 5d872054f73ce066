"""Writes the tables of docs/meshes.md from benchmarks/results/meshes.json and an H200's measured steps."""

import contextlib
import io
import json
from pathlib import Path
from typing import Any

from page_marks import write_between

from benchmarks.gpu_steps import RESULT as STEPS
from benchmarks.gpu_steps import show_beside
from benchmarks.studies.mesh_errors import RESULT, WAYS
from collectives.output_files import write_text

PAGE = Path(__file__).with_name("meshes.md")
TITLES = {
    "shipped": "as shipped, fitted to all", "left_out": "each source left out of the fit",
    "adapted_3": "so, and adapted to three of its rows", "adapted_8": "so, and to eight",
}  # fmt: skip


def errors(found: dict[str, Any]) -> str:
    """Return median errors by source, in each way."""
    sources = list(found["shipped"]["sources"])
    lines = [f"| {found['date']}, median errors (%) | {' | '.join(sources)} | mean |"]
    lines.append("| --- |" + " ---: |" * (len(sources) + 1))
    for way in WAYS:
        cells = [f"{100 * found[way]['sources'][name]['median']:.1f}" for name in sources]
        lines.append(f"| {TITLES[way]} | {' | '.join(cells)} | {100 * found[way]['mean_of_medians']:.1f} |")
    held = [f"{100 * found['left_out']['sources'][name]['coverage80']:.0f}" for name in sources]
    lines.append(f"| within the 80 % interval, left out | {' | '.join(held)} | |")
    memory, failed = found["shipped"]["memory"], found["shipped"]["failed"]
    lot = [f"{name} {100 * row['median']:.1f} %" for name, row in found["lot"].items()]
    text = (
        f"Jobs that a lot put aside before the structure was chosen, median: {', '.join(lot)}. "
        f"Memory: {100 * memory['median']:.1f} % in the median of {memory['n']} runs; failed runs are told from "
        f"finished ones with an AUC of {failed['auc']:.3f} and an accuracy of {100 * failed['accuracy']:.0f} %."
    )
    return "\n".join([*lines, "", text]) + "\n"


def choices(found: dict[str, Any]) -> str:
    """Return what rules of choosing lose."""
    lines = ["| chosen by | regret, median (mean), % | best of three, median (mean), % | rank correlation |"]
    lines.append("| --- | ---: | ---: | ---: |")
    for name, row in found["left_out"]["choice"].items():
        one, three = ((100 * row[f"{what}_median"], 100 * row[f"{what}_mean"]) for what in ("regret", "best_of_3"))
        cells = f"{one[0]:.1f} ({one[1]:.1f}) | {three[0]:.1f} ({three[1]:.1f}) | {row['rank']:.2f}"
        lines.append(f"| {name} | {cells} |")
    return "\n".join(lines) + "\n"


def steps() -> str:
    """Return an H200's measured steps beside their predictions."""
    with contextlib.redirect_stdout(io.StringIO()) as out:
        show_beside(STEPS, "p5en.48xlarge", "H200 SXM")
    return out.getvalue()


def main() -> None:
    """Write the page."""
    found = json.loads(RESULT.read_text(encoding="utf-8"))
    page = PAGE.read_text(encoding="utf-8")
    for name, text in (("errors", errors(found)), ("choices", choices(found)), ("h200", steps())):
        page = write_between(page, f"mesh {name}", text)
    write_text(PAGE, page)


if __name__ == "__main__":
    main()
