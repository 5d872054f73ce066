"""Write the step times and accuracies of each gradient synchronization."""

from statistics import mean, variance
from textwrap import fill
from typing import Any

from page_writer import Parts, read_results, table
from scipy.stats import f_oneway

RECIPE = ("global_batch", "learning_rate", "schedule", "warm_up")

Found = dict[str, Any]
Rows = list[Found]


def overlap(results: Found) -> str:
    """Return a table of step times, relative to DistributedDataParallel."""
    caption = (
        f"{_where(results)}. ResNet-18 on {results['ranks']} ranks with {results['threads']} thread and "
        f"{results['batch_size']} images each, {results['rounds']} rounds. In brackets: the 95 % bootstrap interval "
        "of the median."
    )
    rows = []
    for row in results["steps"]:
        low, high = row["interval"]
        ratio = "1" if row["way"] == "ddp" else f"{row['ratio']:.3f} ({low:.3f} to {high:.3f})"
        rows.append([f"`{row['way']}`", f"{row['step_s'] * 1e3:.0f} ms", ratio])
    return _filled(caption) + "\n" + table("gradient sync | step: | relative to DDP:", rows)


def ways(results: Found) -> str:
    """Return the choice of the recipe, and a table of the gradient syncs."""
    rows = list[list[str]]()
    for row in results["ways"]:
        right = [f"{each:.1%}".replace("%", " %") for each in row["accuracies"]]
        apart = "the same bits" if row["furthest"] == 0 else f"{row['furthest']:.0e} of one"
        rows.append([f"`{row['way']}`", *right, apart if rows else "-"])
    heads = [f"held out, epoch {number + 1}:" for number in range(results["epochs"])]
    made = table(" | ".join(["gradient sync, 2 ranks", *heads, "largest difference from the ring's losses:"]), rows)
    caption = f"{_where(results)}. {_choice(by_recipe(results['recipes']))}"
    return f"{_filled(caption)}\n{made}"


def by_recipe(rows: Rows) -> list[tuple[float, tuple[Any, ...]]]:
    """Return the mean accuracy of each recipe on the images that choose it; the best first."""
    named = list(dict.fromkeys(tuple(row[name] for name in RECIPE) for row in rows))
    means = [
        mean(row["accuracies"][-1] for row in rows if tuple(row[name] for name in RECIPE) == recipe) for recipe in named
    ]
    return sorted(zip(means, named, strict=True), key=lambda each: -each[0])


def _choice(recipes: list[tuple[float, tuple[Any, ...]]]) -> str:
    (best, (batch, rate, schedule, warm_up)), (second, _), *_ = recipes
    return (
        f"Best of {len(recipes)} recipes: learning rate {rate:g}, schedule {schedule}, {warm_up} steps of warm-up, "
        f"{batch} images per step. Mean accuracy of two seeds on the images used for the choice: {best:.1%} with this "
        f"recipe, {second:.1%} with the second-best and {recipes[-1][0]:.1%} with the worst."
    ).replace("%", " %")


def ranks(results: Found) -> str:
    """Return a table of accuracy by number of ranks and seed, with an analysis of variance."""
    rows = results["ranks"]
    seeds = sorted({row["seed"] for row in rows})
    groups, lines = list[list[float]](), list[list[str]]()
    for count in sorted({row["ranks"] for row in rows}):
        right = {row["seed"]: row["accuracies"][-1] for row in rows if row["ranks"] == count}
        groups.append(list(right.values()))
        batch = rows[0]["global_batch"] // count
        cells = [f"{right[seed]:.1%}" if seed in right else "-" for seed in seeds]
        lines.append(
            [str(count), str(batch), *(cell.replace("%", " %") for cell in [*cells, f"{mean(groups[-1]):.1%}"])]
        )
    heads = ["ranks:", "images per rank and step:", *(f"held out, seed {seed}:" for seed in seeds), "mean:"]
    return f"{table(' | '.join(heads), lines)}\n{_filled(_noise(groups))}"


def _noise(groups: list[list[float]]) -> str:
    means = [mean(group) for group in groups]
    within = mean(variance(group) for group in groups) ** 0.5
    chance = float(f_oneway(*groups).pvalue)
    return (
        f"The means differ by {100 * (max(means) - min(means)):.1f} percentage points. The standard deviation between "
        f"seeds is {100 * within:.1f} points. A one-way analysis of variance gives p = {chance:.2f}, so the number of "
        f"ranks has {'a' if chance < 0.05 else 'no'} significant effect."
    )


def _where(results: Found) -> str:
    where = results["environment"]
    return f"{where['date']}: {where['cpu']}, {where['cores']} cores, torch {where['torch']}"


def _filled(text: str) -> str:
    return fill(text, 120, break_on_hyphens=False) + "\n"


PARTS: Parts = {
    "docs/reports/training.md": {
        "overlap": lambda: overlap(read_results("overlap")),
        "ways": lambda: ways(read_results("training_curves")),
        "ranks": lambda: ranks(read_results("training_curves")),
    }
}
