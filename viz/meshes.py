"""The picture of a search for meshes: rate against memory of all, and those that no other beats in both."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.figure import Figure

from collectives.errors import InputError
from viz.file_types import check_file
from viz.style import DPI, FAINT, GREY, INK, PAPER, chunk_colours, write_figure


@dataclass(frozen=True)
class MeshDots:
    """The meshes of one job: tokens a second and GiB of each, which is which form, and the Pareto front's numbers."""

    title: str
    rates: Sequence[float]
    memory_gib: Sequence[float]
    forms: Sequence[str]
    names: Sequence[str]
    front: Sequence[int]
    limit_gib: float  # of what a device has


def draw_meshes(title: str, jobs: Sequence[MeshDots], path: Path | str) -> None:
    """Write the picture as .png, .svg or .pdf. Raise InputError for another suffix, and where there is nothing."""
    path = check_file(path, "a picture of meshes")
    if not any(len(job.rates) for job in jobs):
        raise InputError(f"{path}: there is nothing to draw")
    write_figure(meshes_figure(title, jobs), path)


def meshes_figure(title: str, jobs: Sequence[MeshDots]) -> Figure:
    """Return the picture as a figure: a panel a job."""
    forms = sorted({form for job in jobs for form in job.forms})
    colours = dict(zip(forms, chunk_colours(len(forms)), strict=True))
    figure = Figure(figsize=(6.4 * len(jobs), 5.2), dpi=DPI, facecolor=PAPER, layout="constrained")
    figure.suptitle(title, color=INK, fontsize=13, x=0.01, ha="left")
    for number, job in enumerate(jobs):
        axes = figure.add_subplot(1, len(jobs), number + 1, facecolor=PAPER)
        for form in forms:
            chosen = [k for k, one in enumerate(job.forms) if one == form]
            axes.scatter(
                [job.memory_gib[k] for k in chosen], [job.rates[k] for k in chosen], s=7, alpha=0.5, linewidths=0,
                color=colours[form], label=form if number == 0 else None,
            )  # fmt: skip
        axes.plot([job.memory_gib[k] for k in job.front], [job.rates[k] for k in job.front], color=INK, linewidth=1)
        for k in job.front[:1]:
            axes.annotate(
                job.names[k], (job.memory_gib[k], job.rates[k]), xytext=(0, 8), textcoords="offset points",
                fontsize=8, color=INK, ha="right",
            )  # fmt: skip
        axes.axvline(job.limit_gib, color=GREY, linestyle="--", linewidth=1)
        axes.set_xlim(0, 1.3 * job.limit_gib)
        axes.set_ylim(0, 1.12 * max(job.rates))
        axes.set_title(job.title, fontsize=10, color=INK, loc="left")
        axes.set_xlabel("memory of a device (GiB)", color=INK)
        axes.grid(color=FAINT, linewidth=0.5)
        if number == 0:
            axes.set_ylabel("tokens/s", color=INK)
    figure.legend(
        loc="outside lower center", ncols=min(4 * len(jobs), len(forms)), frameon=False, fontsize=9, markerscale=2.5
    )
    return figure
