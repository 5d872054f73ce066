"""Compare training steps on virtual ranks, with ``--compute measured``, with steps on real gloo ranks of this machine.

    python benchmarks/virtual_on_gloo.py [--small] [--ranks 2] [--rounds 4] [--steps 40] [-o FILE]

The models are a perceptron of 2.1 million parameters and a transformer of 2.4 million, which was held out until all
else was chosen (``virtual_gloo/training.py``). ``--small`` trains models whose steps take a few milliseconds; none was
used in development. They are also predicted with the cached calibration of ``ringlab calibrate``.

Real and virtual ranks train in alternation. The time of a step is the time between two optimizer steps: the median of
the first real rank, and the mean of the replay with a calibration made at the beginning. The ratio is virtual over
real: the median, the minimum and the maximum over the rounds.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import simcomm
from collectives.call import CollectiveCall
from collectives.catalogue import find_algorithm
from collectives.output_files import write_text
from collectives.records.calibration import Calibration, cached_calibration, is_cached
from collectives.records.environment import describe_measurement
from realcomm.calibration.calibration import calibrate
from replay.recording_builder import STEP
from replay.simulation.figures import mark_figures
from replay.simulation.replay import replay
from virtual.hosting.host import VirtualHost
from virtual.options import VirtualOptions
from virtual.process.programs import UserProgram

FOLDER = Path(__file__).parent / "virtual_gloo"
RESULTS = Path(__file__).parent / "results"
USUAL = tuple((strategy, model) for model in ("perceptron", "transformer") for strategy in ("ddp", "fsdp"))
SMALL = (("ddp", "narrow"), ("fsdp", "narrow"), ("hand", "narrow"), ("ddp", "deep"), ("ddp", "convolution"))
Training = tuple[str, str]  # strategy and model
TIMEOUT_S = 120
ELEMENTS = 2_100_000  # about as many as the gradients have


def words(training: Training, steps: int) -> tuple[str, ...]:
    """Return the arguments of the program."""
    strategy, model = training
    return strategy, str(steps), model


def train_really(training: Training, ranks: int, steps: int) -> float:
    """Return the seconds of a step on real ranks: the median of the first rank."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    command += [str(FOLDER / "timed.py"), str(FOLDER / "training.py"), *words(training, steps)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=True)
    return float(done.stdout.split()[-1])


def train_virtually(
    host: VirtualHost, training: Training, ranks: int, steps: int, calibrations: Sequence[Calibration]
) -> list[float]:
    """Return the compute seconds of a rank per step, and the predicted seconds of a step with each calibration."""
    program = UserProgram(str(FOLDER / "training.py"), words(training, steps))
    cluster = simcomm.this_machine(ranks)
    options = VirtualOptions(program, ranks, cluster, compute="measured", timing="recorded")
    recording = host.run(options, timeout=TIMEOUT_S).recordings[0]
    assert recording is not None, "the program communicates"
    step_seconds = [float(recording.computed().mean()) / steps]
    for known in calibrations:
        run = replay(recording, cluster, calibration=known)
        step_seconds.append(next(mark.mean_s for mark in mark_figures(run) if mark.name == STEP))
    return step_seconds


def measure(trainings: Sequence[Training], ranks: int, rounds: int, steps: int) -> list[dict[str, Any]]:
    """Return a row for each training."""
    calls = [CollectiveCall(find_algorithm("ring", "all_reduce"), ELEMENTS)]
    known = [calibrate(ranks) if trainings == SMALL else calibrate(ranks, calls=calls, all_sizes=False)]
    known += [cached_calibration(ranks)] * (trainings == SMALL and is_cached(ranks))
    real: dict[Training, list[float]] = {key: [] for key in trainings}
    virtual_seconds: dict[Training, list[list[float]]] = {key: [] for key in trainings}
    with VirtualHost(("torch._dynamo", "torch.distributed.fsdp")) as host:
        for number in range(rounds):
            for training in trainings:
                if number % 2:
                    virtual_seconds[training].append(train_virtually(host, training, ranks, steps, known))
                real[training].append(train_really(training, ranks, steps))
                if not number % 2:
                    virtual_seconds[training].append(train_virtually(host, training, ranks, steps, known))
    rows = []
    for training in trainings:
        pairs = list(zip(virtual_seconds[training], real[training], strict=True))
        ratios = [virtual[1] / measured for virtual, measured in pairs]
        earlier = [virtual[-1] / measured for virtual, measured in pairs]
        row = {
            "strategy": training[0],
            "model": training[1],
            "ranks": ranks,
            "real_s": median(real[training]),
            "virtual_s": median(seconds for _, seconds, *_ in virtual_seconds[training]),
            "computed_s": median(computed for computed, *_ in virtual_seconds[training]),
            "ratio": median(ratios),
            "ratio_low": min(ratios),
            "ratio_high": max(ratios),
            "earlier_ratio": median(earlier),
            "loads": [run.load.others if run.load else 0.0 for run in known],
        }
        rows.append(row)
    return rows


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("-o", type=Path)
    options = parser.parse_args()
    rows = measure(SMALL if options.small else USUAL, options.ranks, options.rounds, options.steps)
    for row in rows:
        print(row, flush=True)
    results = options.o or RESULTS / ("virtual_small_steps.json" if options.small else "virtual_on_gloo.json")
    write_text(results, json.dumps({"environment": describe_measurement(), "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
