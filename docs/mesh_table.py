"""Write the layout tables: errors by source, regret of selection rules, and steps of an H200."""

from statistics import median

from page_writer import Parts, read_results, table

WAYS = {
    "shipped": "as shipped, fitted to all", "left_out": "each source left out of the fit",
    "adapted_3": "so, and adapted to three of its rows, those that tell most",
    "adapted_3_spread": "so, but to rows spread over the source", "adapted_8": "so, to eight that tell most",
}  # fmt: skip


def errors() -> str:
    """Return median errors by source, in each way, and what memory and the jobs that were held out say."""
    found = read_results("meshes")
    sources = list(found["shipped"]["sources"])
    rows = []
    for way, title in WAYS.items():
        of_sources = found[way]["sources"]  # without one of which all rows were seen
        medians = [f"{100 * of_sources[name]['median']:.1f}" if name in of_sources else "-" for name in sources]
        rows.append([title, *medians, f"{100 * found[way]['mean_of_medians']:.1f}"])
    held = [f"{100 * found['left_out']['sources'][name]['coverage80']:.0f}" for name in sources]
    rows.append(["within the 80 % interval, left out", *held, ""])
    memory, failed = found["shipped"]["memory"], found["shipped"]["failed"]
    lot = ";\n".join(f"{name} {100 * row['median']:.1f} %" for name, row in found["lot"].items())
    heads = " | ".join([f"{found['date']}, median errors (%)", *(f"{name}:" for name in sources), "mean:"])
    return table(heads, rows) + (
        f"\nJobs that a lot held out before the structure was chosen, in the median:\n{lot}.\n"
        f"Memory: {100 * memory['median']:.1f} % in the median of {memory['n']} runs; failed runs are told from\n"
        f"finished ones with an AUC of {failed['auc']:.3f} and an accuracy of {100 * failed['accuracy']:.0f} %.\n"
    )


def choices() -> str:
    """Return what rules of choosing lose, the model by fits that have not seen the source."""
    rows = []
    for name, row in read_results("meshes")["left_out"]["choice"].items():
        pairs = [(100 * row[f"{what}_median"], 100 * row[f"{what}_mean"]) for what in ("regret", "best_of_3")]
        rows.append([name, *(f"{one:.1f} ({mean:.1f})" for one, mean in pairs), f"{row['rank']:.2f}"])
    return table("chosen by | regret, median (mean), %: | best of three, %: | rank correlation:", rows)


def steps() -> str:
    """Return an H200's steps beside their predictions, and how far these are off."""
    found = read_results("gpu_steps_beside")["rows"]
    rows = []
    for row in found:
        both = [row["predict"], row["search"]]
        times = [f"{1e3 * one[0]:.1f}" if one else "-" for one in both]
        kept = [f"{one[3] / 2**30:.1f}" if one else "-" for one in both]
        name = row["model"].partition(",context")[0]
        cells = [name, row["batch_size"], row["precision"], f"{1e3 * row['step_s']:.1f}", *times]
        rows.append([*cells, f"{row['reserved_bytes'] / 2**30:.1f}", *kept])
    said = []
    for way, title in (("predict", "`predict --devices 1`"), ("search", "`search`")):
        known = [(row[way], row) for row in found if row[way]]
        off = [
            median(abs(one[at] / row[key] - 1) for one, row in known)
            for at, key in ((0, "step_s"), (3, "reserved_bytes"))
        ]
        held = sum(one[1] <= row["step_s"] <= one[2] for one, row in known)
        said.append(f"{title}: {off[0]:.0%} of the time and {off[1]:.0%} of the memory, {held} of {len(known)} in 80 %")
    heads = "model | batch: | precision | step, ms: | predict: | search: | memory, GiB: | predict: | search:"
    return table(heads, rows) + "\nMedian errors of " + ";\nof ".join(said) + ".\n" + _odd_vocabulary()


def _odd_vocabulary() -> str:
    """Return what GPT-2's words, an odd number, cost a product of matrices, beside one of a multiple of 64."""
    products = read_results("gpu_steps")["products"]
    odd, even = (
        max(
            2 * one["m"] * one["n"] * one["k"] / one["seconds"] / 1e12
            for one in products
            if (one["n"], one["k"]) == size
        )
        for size in ((50257, 768), (3072, 768))
    )
    return f"GPT-2's head, with its 50,257 words, reaches {odd:.0f} TFLOP/s where its MLP reaches {even:.0f}.\n"


PARTS: Parts = {"docs/how-to/search-layout.md": {"mesh errors": errors, "mesh choices": choices, "mesh h200": steps}}
