"""Names that the last release had, and what to use instead. The next release deletes this file."""

COMMANDS: dict[str, str] = {  # command: what to use instead
    "diagnose": "use `ringlab explain --measured FILE` for tables of nccl-tests, and `ringlab virtual` for hangs",
    "accuracy": "use `python -m benchmarks.accuracy` in a checkout of Ringlab",
    "hardware": "use `ringlab list hardware`, and `ringlab plot cluster` for several nodes",
    "winners": "use `ringlab predict SCENARIO --sweep collective.sizes=1..65536KiB*4 --plot FILE`",
    "k8s": "adapt the manifest in docs/how-to/run-local.md, under Kubernetes",
}
OPTIONS: dict[str, str] = {  # "command --option": what to use instead
    "compare --devices": "use `python -m benchmarks.accuracy.one_rank` in a checkout of Ringlab",
    "compare --profile": "use `python -m benchmarks.accuracy.one_rank` in a checkout of Ringlab",
    "predict --framework": "use `--set training.framework=NAME`",
    "slurm --job-name": "use `--sbatch=--job-name=NAME`",
    "slurm --qos": "use `--sbatch=--qos=NAME`",
    "slurm --constraint": "use `--sbatch=--constraint=FEATURES`",
    "slurm -C": "use `--sbatch=--constraint=FEATURES`",
    "slurm --mem": "use `--sbatch=--mem=SIZE`",
    "slurm --log": "use `--sbatch=--output=PATTERN`",
    "slurm --port": "the port follows from the number of the job",
    "search --seq": "use `--sequence N`",
    "search --tokens": "use `--target-tokens N`",
    "plan --keep": "all candidates are predicted in seconds, so nothing is cached",
}
KEYS: dict[str, str] = {  # "table.key" of a scenario file: what to write instead
    "training.contention": "remove it; traffic of a step that shares links is no longer predicted",
    "training.input_bytes": "remove it; copies of batches are no longer predicted",
    "plan.interruptions_per_day": "subtract the expected downtime from plan.deadline",
    "plan.lost_per_interruption": "subtract the expected downtime from plan.deadline",
}


def describe_removed(names: dict[str, str], name: str) -> str:
    """Return the sentence about a removed name, or an empty string.

    >>> describe_removed({"winners": "use `ringlab predict --sweep`"}, "winners")
    'winners was removed; use `ringlab predict --sweep`'
    """
    return f"{name} was removed; {names[name]}" if name in names else ""
