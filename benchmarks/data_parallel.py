"""Compare DataParallel with DistributedDataParallel: predicted on a described machine, measured on this machine's GPUs.

    python benchmarks/data_parallel.py [--scenario two-p5] [--devices 2 4 8] [--batch-size 32] [-o FILE]

The prediction is ``ringlab predict SCENARIO --devices ... --what-if strategy=ddp,data_parallel`` of a ResNet-50. The
run is a ResNet-18 on synthetic images: once in one process on all GPUs, and once with a rank per GPU and torch's own
sync. Numbers of GPUs that this machine does not have are skipped with a reason.
"""

import argparse
import json
from pathlib import Path
from statistics import median
from typing import Any

import ringlab
from benchmarks.torch_strategies.data_parallel import run_data_parallel, why_not
from collectives.output_files import write_text
from collectives.records.environment import describe_measurement
from collectives.training.workload import Training
from realcomm.training.trainer import train
from ringlab.shared.figures import training_figures
from simcomm import this_machine

RESULTS = Path(__file__).parent / "results" / "data_parallel.json"
MODEL = ("training.model=resnet50", "training.image_shape=[3,224,224]")
STRATEGIES = ("ddp", "data_parallel")
STEPS, WARM_UP = 20, 5


def predict(scenario: str, devices: list[int]) -> list[dict[str, Any]]:
    """Return a row for each number of devices: the seconds of a step with each strategy."""
    answer = ringlab.predict_devices(scenario, devices, *MODEL, what_if=f"strategy={','.join(STRATEGIES)}")
    by_strategy = [{row.devices: row.step_s for row in case.rows} for case in answer.cases]
    return [
        {"devices": count, **{strategy: steps[count] for strategy, steps in zip(STRATEGIES, by_strategy, strict=True)}}
        for count in devices
    ]


def measure(devices: int, batch_size: int) -> dict[str, Any]:
    """Return the seconds of a step with each strategy on this machine's GPUs, or why there are none."""
    if reason := why_not(devices):
        return {"devices": devices, "skipped": reason}
    training = Training(None, dataset="synthetic", batch_size=batch_size, images=STEPS * devices * batch_size)
    steps = run_data_parallel(training, devices, steps=STEPS)
    ranks = train(training, this_machine(devices), steps=STEPS, backend="nccl")
    ddp = training_figures(ranks, training).step_s
    return {"devices": devices, "ddp": ddp, "data_parallel": median(steps.seconds[WARM_UP:])}


def show(title: str, rows: list[dict[str, Any]]) -> None:
    """Print the rows."""
    print(title)
    for row in rows:
        if "skipped" in row:
            print(f"  {row['devices']} GPUs: skipped, {row['skipped']}")
            continue
        ddp, data_parallel = (row[strategy] for strategy in STRATEGIES)
        print(
            f"  {row['devices']} GPUs: DDP {ddp * 1e3:.1f} ms, DataParallel {data_parallel * 1e3:.1f} ms, "
            f"{data_parallel / ddp:.2f} times"
        )


def main() -> None:
    """Read the options, predict, measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scenario", default="two-p5", help="whose cluster the prediction is of")
    parser.add_argument("--devices", type=int, nargs="+", default=[2, 4, 8])
    parser.add_argument("--batch-size", type=int, default=32, help="images of a GPU and step, in the run")
    parser.add_argument("-o", "--output", type=Path, default=RESULTS, metavar="FILE")
    options = parser.parse_args()
    predicted = predict(options.scenario, options.devices)
    show(f"Predicted, ResNet-50, {options.scenario}:", predicted)
    measured = [measure(devices, options.batch_size) for devices in options.devices]
    show("Run here, ResNet-18:", measured)
    results = {"kind": "benchmark", "schema_version": 1, "environment": describe_measurement(),
               "scenario": options.scenario, "predicted": predicted, "measured": measured}  # fmt: skip
    write_text(options.output, json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
