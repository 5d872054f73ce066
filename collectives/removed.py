"""List commands, options, keys and names that were removed or renamed since the last release.

This file will be deleted in the next release.
"""

from collections.abc import Iterator
from typing import Any

from collectives.errors import InputError, warn_input

COMMANDS: dict[str, str] = {  # command: what to use instead
    "diagnose": "use `ringlab explain --measured FILE` for tables of nccl-tests, and `ringlab virtual` for hangs",
    "accuracy": "use `python -m benchmarks.accuracy` in a checkout of Ringlab",
    "hardware": "use `ringlab list hardware`, and `ringlab plot cluster` for several nodes",
    "winners": "use `ringlab predict SCENARIO --sweep collective.sizes=1..65536KiB*4 --plot FILE`",
    "demo": "use `ringlab compare quickstart --report report.html` and `ringlab animate star8 -o ring.gif`",
    "k8s": 'adapt the Kubernetes manifest in the documentation, page "Run on a cluster"',
}
OPTIONS: dict[str, str] = {  # "command --option": what to use instead
    "compare --devices": "use `python -m benchmarks.accuracy.one_rank` in a checkout of Ringlab",
    "compare --profile": "use `python -m benchmarks.accuracy.one_rank` in a checkout of Ringlab",
    "predict --framework": "use `--set training.framework=NAME`",
    "predict --engine": "the size of the problem selects the engine; in Python, `simcomm.run` has `engine=`",
    "predict --explain": "all notes are shown",
    "plan --explain": "all notes are shown",
    "replay --report": "use `--plot FILE.html`, and `--trace FILE.json` for `ringlab plot path FILE.json`",
    "replay --explain": "all notes are shown",
    "run --explain": "all notes are shown",
    "compare --explain": "all notes are shown",
    "virtual --explain": "all notes are shown",
    "search --runs": "use `ringlab calibrate --runs FILE.csv`, which adapts all predictions of meshes",
    "profile --dataset": "set `training.loader_rate` to the samples/s that the loaders of one host deliver",
    "profile --data-folder": "set `training.loader_rate` to the samples/s that the loaders of one host deliver",
    "profile --trace": "measure on that machine: `ringlab profile MODEL --batch-size N --device cuda`",
    "explain -o": "the output lists the rings, and `--json FILE` also has the trees",
    "explain --output": "the output lists the rings, and `--json FILE` also has the trees",
    "virtual --report": "use `--trace FILE.json` and `ringlab animate FILE.json -o FILE.html`",
    "run --check": "the losses of three steps are always compared; `same` in the JSON has the result",
    "compare --check": "the losses of three steps are always compared; `same` in the JSON has the result",
    "run --predict": "use `ringlab compare`, which predicts, runs and shows both",
    "slurm --job-name": "use `--sbatch=--job-name=NAME`",
    "slurm --qos": "use `--sbatch=--qos=NAME`",
    "slurm --constraint": "use `--sbatch=--constraint=FEATURES`",
    "slurm -C": "use `--sbatch=--constraint=FEATURES`",
    "slurm --mem": "use `--sbatch=--mem=SIZE`",
    "slurm --log": "use `--sbatch=--output=PATTERN`",
    "slurm --port": "the port follows from the number of the job",
    "replay --chakra": "use torch.profiler.ExecutionTraceObserver and Chakra's own converter",
    "search --offload": "use `--lora RANK`, `--optimizer adamw8bit` or more devices",
    "search --seq": "use `--sequence N`",
    "search --tokens": "use `--target-tokens N`",
    "search --framework": "use `--set training.framework=NAME`",
    "search --deadline": "use `ringlab plan SCENARIO --deadline TIME`",
    "search --budget": "use `ringlab plan SCENARIO --budget DOLLARS`",
    "search --export": "the guide to search lists the options of torchtitan and Megatron-LM for each part of a mesh",
    "run --profile": "profile a script of your own with torch.profiler, or use `--trace FILE` for the phases of steps",
    "run --tensorboard": "plot `metrics.jsonl` of `--log-dir`; the guide to checkpoints converts it to TensorBoard",
    "learn --grade": "use `ringlab learn LESSON FILE --check --json MARKS.json` for each file, in a container",
    "learn --real": "use `ringlab record --ranks N FILE`",
    "list -o": "use `ringlab plot cluster dgx-h100 --set cluster.preset=NAME -o FILE`",
    "list --output": "use `ringlab plot cluster dgx-h100 --set cluster.preset=NAME -o FILE`",
    "bench --emulate": "use `ringlab run SCENARIO --emulate`",
    "plan --keep": "all candidates are predicted in seconds, so nothing is cached",
}
KEYS: dict[str, str] = {  # "table.key" of a scenario file: what to write instead
    "cluster.route": "set routing, or list only the links that routes take in [[cluster.link]]",
    "cluster.sharing": "remove it; messages always share links max-min fairly",
    "faults.link.every": "write a [[faults.link]] table for each outage",
    "faults.messages.deviation": 'remove it, and set distribution = "exponential"',
    "faults.compute.deviation": 'remove it, and set distribution = "exponential"',
    "cluster.terms": "in Python, pass a builder such as simcomm.star transport=Transport(tcp=TcpTerms(window=65e3))",
    "training.contention": "remove it; traffic of a step that shares links is no longer predicted",
    "training.parallelism.prefetch": "remove it; each block is gathered during the one before",
    "training.parallelism.bucket_view": "remove it; memory is fitted to published runs, which do not name it",
    "training.verify": "remove it; for altered images of CIFAR-10, save pictures and use dataset = 'imagefolder'",
    "training.inspect_every": "remove it; `ringlab virtual FILE` finds unused parameters and gradients that differ",
    "training.input_bytes": "remove it; copies of batches are no longer predicted",
    "plan.interruptions_per_day": "subtract the expected downtime from plan.deadline",
    "plan.lost_per_interruption": "subtract the expected downtime from plan.deadline",
}
FILE_SUFFIXES: dict[str, str] = {".mp4": "write a .gif, and convert it with `ffmpeg -i run.gif run.mp4`"}

ALGORITHMS: dict[str, str] = {"all_to_all/naive": "use all_to_all/direct, which sends the same messages"}
RENAMED_KEYS: dict[str, str] = {  # "table.key" of a scenario file: its new name, accepted until 0.2
    "trouble": "faults",
    "training.parallelism.form": "training.parallelism.strategy",
}
RENAMED_FIELDS: dict[str, str] = {  # "record.field" of a JSON file: its new name, accepted until 0.2
    f"calibration.{parts}{old}": f"calibration.{parts}{new}"
    for parts in ("", "parts.")
    for old, new in {"hops": "message_classes", "overlap.steal": "overlap.overlap_slowdown"}.items()
} | {"recording.sites": "recording.locations", "recording.calls.columns.site": "recording.calls.columns.location"}
WHAT_IFS: dict[str, str] = {  # "command --what-if key": what to use instead
    "predict --what-if link": "use `bandwidth=1,10Gbit/s`, or `cluster.description.link=nvswitch,pcie` inside a host",
    "search --what-if batch": "run one search for each value of `--batch`",
    "search --what-if lora": "run one search for each value of `--lora`",
    "search --what-if bits": "run one search for each value of `--bits`",
    "search --what-if offload": "use `--lora RANK`, `--optimizer adamw8bit` or more devices",
}
RENAMED_WHAT_IFS = {"form": "strategy"}  # of predict --what-if, accepted until 0.2
FUNCTIONS: dict[str, str] = {  # "package.name" of Python: what to use instead
    "simcomm.dragonfly": "use simcomm.from_links or simcomm.from_graph",
    "simcomm.listed_routes": "use simcomm.ecmp with a seed, or a graph without the links that no route takes",
    "simcomm.rail_aware": "use simcomm.ecmp",
    "simcomm.sweep": 'call simcomm.run(..., engine="compiled", record=False) in a loop, or use ringlab.predict_sweep',
}
RENAMED_FUNCTIONS: dict[str, str] = {  # "package.name" of Python: its new name, accepted until 0.2
    "collectives.Request": "CollectiveCall",
    "collectives.make_request": "make_call",
    "ringlab.FormAnswer": "StrategyAnswer",
    "ringlab.HardwareCatalogue": "HardwareCatalog",
    "ringlab.compare_form": "compare_strategy",
    "ringlab.run_form": "run_strategy",
}


def rename_keys(content: dict[str, Any], names: dict[str, str], where: str) -> None:
    """Rename deprecated keys in nested tables in place, and warn about each.

    ``where`` is the file or option for the messages. Raise InputError if a table contains both the old and the new key.
    """
    for old, new in names.items():
        *parents, key = old.split(".")
        renamed = new.rpartition(".")[2]
        for table in _tables(content, parents):
            if key in table and renamed in table:
                raise InputError(f"{where}: {old} is the old name of {renamed}; remove {old}")
            if key in table:
                warn_renamed(where, old, new)
                table[renamed] = table.pop(key)


def _tables(content: object, parents: list[str]) -> Iterator[dict[str, Any]]:
    if isinstance(content, list):
        for entry in content:
            yield from _tables(entry, parents)
    elif isinstance(content, dict) and not parents:
        yield content
    elif isinstance(content, dict):
        yield from _tables(content.get(parents[0]), parents[1:])


def warn_renamed(where: str, old: str, new: str) -> None:
    """Warn that ``old`` was renamed to ``new``. The message starts with ``where``, the file or option."""
    warn_input(f"{where}: {old} is now {new.rpartition('.')[2]}; rename it")


def describe_removed(names: dict[str, str], name: str) -> str:
    """Return the message for a removed name, or an empty string if ``name`` was not removed."""
    return f"{name} was removed; {names[name]}" if name in names else ""
