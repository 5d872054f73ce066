"""Whether this machine can emulate clusters, tried in a process of its own: ``python -m realcomm.emulation.trial``."""

import json
import subprocess
import sys
from dataclasses import dataclass

from collectives.errors import InputError, RunFailed
from realcomm.emulation.network import EmulatedNetwork
from realcomm.emulation.plan import CANNOT, Direction, NetworkPlan

TIMEOUT_S = 90.0
BANDWIDTH = 20e6 / 8  # bytes/s


@dataclass(frozen=True)
class Ability:
    """What a trial found."""

    rights: str  # by which this process may build networks
    bearable: float  # bytes/s of all hosts together
    delays: bool  # whether links can have their latency


def try_emulation() -> Ability:
    """Build and measure two hosts in another process, as a run does. Raise RunFailed with what is missing.

    >>> try_emulation().bearable > 1e6  # doctest: +SKIP
    True
    """
    call = [sys.executable, "-P", "-m", __name__]
    try:
        done = subprocess.run(call, capture_output=True, text=True, timeout=TIMEOUT_S, stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired as error:
        raise RunFailed(f"{CANNOT}: not tried within {TIMEOUT_S:g} s") from error
    if done.returncode != 0:
        raise RunFailed(done.stderr.strip().rpartition("\n")[2] or CANNOT)
    return Ability(**json.loads(done.stdout))


def main() -> None:
    """Write an Ability as JSON, or why there is none, with exit status 1."""
    links = [("h0", "s0"), ("s0", "h0"), ("h1", "s0"), ("s0", "h1")]
    directions = tuple(Direction(src, dst, BANDWIDTH, 1e-6) for src, dst in links)
    forwarding = {"s0": {"h0": "h0", "h1": "h1"}}
    plan = NetworkPlan("two hosts", ("h0", "h1"), ("h0", "h1"), ("s0",), directions, forwarding)
    try:
        with EmulatedNetwork(plan) as network:
            rights = "by a user namespace" if len(network.namespaces[0].files) > 1 else "as root"
            found = {"rights": rights, "bearable": network.bearable, "delays": network.delays}
    except (InputError, RunFailed) as error:
        sys.exit(str(error))
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main()
