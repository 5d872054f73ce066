"""Compare the predicted and measured times of each message of a collective on an emulated cluster.

    python -m benchmarks.studies.emulated_messages emulated/star8 all_reduce/recursive_doubling "1 MiB"

The prediction uses the pair calibration of ``python -m benchmarks.accuracy --here --json FILE``. The output lists the
messages whose end differs most from the prediction, and the end of each rank.
"""

import argparse
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import realcomm
import simcomm
from benchmarks.accuracy.emulated_rows import name_of
from benchmarks.accuracy.here import BEGIN, BETWEEN, LINKS, SMALL_MESSAGES, find_lateness, pair_before
from collectives import Trace
from collectives.units import format_time, parse_size
from ringlab.emulated import as_built, hosts_bandwidth, on_emulated
from scenarios import load
from simcomm.cluster.pair_fit import fit_pair

RESULTS = Path(__file__).parent.parent / "results" / "accuracy_here.json"
SHOWN = 12  # messages
Name = tuple[int, int, int, int]  # sender, receiver, channel and step


def ends(trace: Trace) -> dict[Name, tuple[float, float]]:
    """Return the begin and the end of each message."""
    return {
        (message.src, message.dst, message.channel, message.step): (message.begin, message.end)
        for message in trace.messages
    }


def compare(predicted: Trace, measured: Trace) -> Iterator[str]:
    """Yield the lines of both traces side by side.

    >>> trace = simcomm.run("broadcast/naive", simcomm.star(2, "1 GB/s", "0 us"), 1000)
    >>> whole, along, message = compare(trace, trace)
    >>> print(along)
    along the chain: ranks begin +0 ms, between messages +0 ms, small messages +0 ms, links +0 ms; furthest off nothing
    >>> print(message)
    0 -> 1, step 0: predicted 0 ns to 1 us, measured 0 ns to 1 us
    """
    times = [format_time(trace.elapsed) for trace in (predicted, measured)]
    yield "whole: predicted {}, measured {}".format(*times)
    if late := find_lateness(predicted, measured):
        parts = zip((BEGIN, BETWEEN, SMALL_MESSAGES, LINKS), late, strict=False)
        differences = ", ".join(f"{name} {1e3 * seconds:+.3g} ms" for name, seconds in parts)
        yield f"along the chain: {differences}; furthest off {late.where or 'nothing'}"
    model, real = ends(predicted), ends(measured)
    both = sorted(model.keys() & real.keys(), key=lambda name: -abs(model[name][1] - real[name][1]))
    for name in sorted(both[:SHOWN], key=lambda name: real[name][1]):
        src, dst, _, step = name
        spans = [" to ".join(map(format_time, of[name])) for of in (model, real)]
        yield f"{src} -> {dst}, step {step}: predicted {spans[0]}, measured {spans[1]}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenario")
    parser.add_argument("algorithm")
    parser.add_argument("size")
    parser.add_argument("--file", type=Path, default=RESULTS)
    options = parser.parse_args()
    scenario, nbytes = on_emulated(load(options.scenario)), parse_size(options.size)
    results: dict[str, Any] = json.loads(options.file.read_text())
    pair = pair_before(results, name_of(scenario), hosts_bandwidth(scenario.cluster))
    with realcomm.emulate(scenario.cluster) as network:
        measured = realcomm.run(options.algorithm, scenario.cluster, nbytes, network=network)
        built = as_built(scenario, network).cluster
    transport = fit_pair(pair, built.world_size)
    predicted = simcomm.run(options.algorithm, replace(built, transport=transport), nbytes)
    print("\n".join(compare(predicted, measured)))


if __name__ == "__main__":
    main()
