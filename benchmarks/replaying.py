"""Measure the time of a replay and of a what-if, for two kinds of programs.

    python benchmarks/replaying.py [--messages 1000000] [-o FILE]

All code is loaded before. *Buckets* are consecutive all_reduces during backward, of 64 ranks on eight racks with 4:1
oversubscription. *Ring by hand* is a program that sends and receives itself, with a quarter as many messages. The time
of a what-if is that of another replay of the same recording. Making the Trace of all messages is timed separately.
"""

import argparse
import json
from pathlib import Path
from time import perf_counter
from typing import Any

import simcomm
from collectives.output_files import write_text
from collectives.records.environment import describe_measurement
from replay.recording import Recording
from replay.recording_builder import RecordedCollective, RecordingBuilder
from replay.simulation.replay import Replayer
from replay.simulation.traces import make_trace

RESULTS = Path(__file__).parent / "results" / "replaying.json"
RANKS = 64
OF_A_RING = 2 * RANKS * (RANKS - 1)  # messages of an all_reduce


def buckets(number: int) -> Recording:
    """Record ``number`` all_reduces of a megabyte that are started one after the other, and awaited at the end."""
    builder, group = RecordingBuilder("buckets", RANKS), tuple(range(RANKS))
    for rank in range(RANKS):
        calls = []
        for bucket in range(number):
            collective = RecordedCollective("all_reduce", group, 1 << 18)
            calls.append(builder.collective(rank, bucket, collective, line="world"))
            builder.post(rank, calls[-1], seconds=1e-5)
        for call in calls:
            builder.wait(rank, call)
    return builder.recording()


def ring_by_hand(steps: int, apart: float) -> Recording:
    """Record ``steps`` exchanges of 4 KiB with both neighbors. A receive is posted ``apart`` seconds after its send."""
    builder = RecordingBuilder(f"ring by hand, {apart:g} s apart", RANKS)
    for rank in range(RANKS):
        right, left = (rank + 1) % RANKS, (rank - 1) % RANKS
        for step in range(steps):
            halves = [
                builder.send(rank, right, 4096, key=(rank, step)),
                builder.recv(rank, left, 4096, key=(left, step)),
            ]
            for half, seconds in zip(halves, (1e-6, apart), strict=True):
                builder.post(rank, half, seconds)
            for half in halves:
                builder.wait(rank, half)
    return builder.recording()


def measure(recording: Recording) -> dict[str, Any]:
    """Return the seconds of two replays and of a Trace."""
    network = simcomm.two_level_tree(8, 8, "25 Gbit/s", "2 us", 4.0)
    begun = perf_counter()
    replayer = Replayer(recording)
    run = replayer.on(network)
    first = perf_counter()
    run = replayer.on(network)
    again = perf_counter()
    make_trace(run)
    return {
        "program": recording.title,
        "calls": len(recording.calls),
        "messages": len(run.messages.src),
        "first_s": first - begun,
        "what_if_s": again - first,
        "trace_s": perf_counter() - again,
    }


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("-o", type=Path, default=RESULTS)
    options = parser.parse_args()
    Replayer(buckets(1)).on(simcomm.two_level_tree(8, 8, "25 Gbit/s", "2 us", 4.0))  # loads machine code
    rows = []
    for recording in (
        buckets(4),
        buckets(max(1, options.messages // OF_A_RING)),
        ring_by_hand(max(1, options.messages // 4 // RANKS), apart=0.0),
        ring_by_hand(max(1, options.messages // 4 // RANKS), apart=1e-6),
    ):
        rows.append(measure(recording))
        print(rows[-1], flush=True)
    content = {"environment": describe_measurement(), "rows": rows}
    write_text(options.o, json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
