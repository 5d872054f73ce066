"""Write the layout tables: errors by source, regret of selection rules, and steps of an H200."""

from statistics import mean, median

from page_writer import Parts, read_results, table

WAYS = {
    "shipped": "as shipped, fitted to all", "left_out": "source left out of the fit",
    "adapted_3": "left out, then adapted to its three most informative rows",
    "adapted_3_spread": "left out, then adapted to three evenly spread rows",
    "adapted_8": "left out, then adapted to eight rows",
}  # fmt: skip


def errors() -> str:
    """Return median errors by source, of memory, and of held-out jobs."""
    results = read_results("meshes")
    sources = list(results["shipped"]["sources"])
    rows = []
    for way, title in WAYS.items():
        of_sources = results[way]["sources"]  # without one of which all rows were seen
        medians = [f"{100 * of_sources[name]['median']:.1f}" if name in of_sources else "-" for name in sources]
        rows.append([title, *medians, f"{100 * results[way]['mean_of_medians']:.1f}"])
    coverages = [100 * results["left_out"]["sources"][name]["coverage80"] for name in sources]
    rows.append(["within the 80 % interval, left out", *(f"{share:.0f}" for share in [*coverages, mean(coverages)])])
    memory, failed = results["shipped"]["memory"], results["shipped"]["failed"]
    lot = {name: f"{100 * row['median']:.1f} %" for name, row in results["lot"].items()}
    names = dict.fromkeys(name.partition(",")[0] for name in lot)
    pairs = ";\n".join(f"{name} {lot[name + ', fitted']} and {lot[name + ', held out']}" for name in names)
    heads = " | ".join([f"{results['date']}, median errors (%)", *(f"{name}:" for name in sources), "mean:"])
    return table(heads, rows) + (
        f"\nSome jobs were held out at random before the structure of the model was chosen.\n"
        f"Median errors of the fitted and of the held-out jobs: {pairs}.\n"
        f"\nThe median error of the predicted memory is {100 * memory['median']:.1f} % over {memory['n']} runs.\n"
        f"As a predictor of which runs fail, the predicted memory has an AUC of {failed['auc']:.3f} and an accuracy of "
        f"{100 * failed['accuracy']:.0f} %.\n"
    )


def choices() -> str:
    """Return the regret of each selection rule; the model is fitted without the source."""
    rows = []
    for name, row in read_results("meshes")["left_out"]["choice"].items():
        pairs = [(100 * row[f"{measure}_median"], 100 * row[f"{measure}_mean"]) for measure in ("regret", "best_of_3")]
        rows.append([name, *(f"{middle:.1f} ({mean:.1f})" for middle, mean in pairs), f"{row['rank']:.2f}"])
    return table("rule | regret, median (mean), %: | best of three, %: | rank correlation:", rows)


def steps() -> str:
    """Return the steps of an H200 with their predictions and errors."""
    measured = read_results("gpu_steps_beside")["rows"]
    rows = []
    for row in measured:
        both = [row["predict"], row["search"]]
        times = [f"{1e3 * prediction[0]:.1f}" if prediction else "-" for prediction in both]
        memory = [f"{prediction[3] / 2**30:.1f}" if prediction else "-" for prediction in both]
        name = row["model"].partition(",context")[0]
        cells = [name, row["batch_size"], row["precision"], f"{1e3 * row['step_s']:.1f}", *times]
        rows.append([*cells, f"{row['reserved_bytes'] / 2**30:.1f}", *memory])
    sentences = []
    for way, title in (("predict", "`predict --devices 1`"), ("search", "`search`")):
        known = [(row[way], row) for row in measured if row[way]]
        off = [
            median(abs(prediction[at] / row[key] - 1) for prediction, row in known)
            for at, key in ((0, "step_s"), (3, "reserved_bytes"))
        ]
        inside_count = sum(prediction[1] <= row["step_s"] <= prediction[2] for prediction, row in known)
        sentences.append(
            f"The median errors of {title} are {100 * off[0]:.0f} % (time) and {100 * off[1]:.0f} % (memory). "
            f"{inside_count} of {len(known)} times lie in the 80 % interval.\n"
        )
    heads = "model | batch: | precision | step, ms: | predict: | search: | memory, GiB: | predict: | search:"
    return "\n".join([table(heads, rows), "".join(sentences) + _odd_vocabulary()])


def _odd_vocabulary() -> str:
    """Return the rate of GPT-2's LM head, whose vocabulary is odd, and of its MLP."""
    products = read_results("gpu_steps")["products"]
    odd, even = (
        max(
            2 * product["m"] * product["n"] * product["k"] / product["seconds"] / 1e12
            for product in products
            if (product["n"], product["k"]) == size
        )
        for size in ((50257, 768), (3072, 768))
    )
    return f"GPT-2's LM head (50,257 tokens, not a multiple of 64) reaches {odd:.0f} TFLOP/s, and its MLP {even:.0f}.\n"


PARTS: Parts = {"docs/reports/layouts.md": {"mesh errors": errors, "mesh choices": choices, "mesh h200": steps}}
