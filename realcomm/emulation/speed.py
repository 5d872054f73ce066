"""How many bytes a second this machine's kernel moves over an emulated link without a limit, by one core."""

import os
import time

from realcomm.emulation.batches import BURST, MTU, QUEUE
from realcomm.emulation.goodput import Endpoint, connect
from realcomm.emulation.tools import run_batch
from realcomm.launching.namespaces import OWN_NETWORK, enter_network, new_network

MOVED_S = 0.1  # of this process's time
_ENDS = ("10.99.0.1", "10.99.0.2")
_RATE = "rate 100gbit"  # more than a core moves: what limits is the core


def measure_speed() -> float:
    """Return the bytes that one second of a core sends and receives in segments of ``MTU``, through a token bucket.

    The core's time counts, not the clock's, so that other processes matter little. This process is in the core of an
    emulation, has one thread, and is there again afterwards.
    """
    home = os.open(OWN_NETWORK, os.O_RDONLY | os.O_CLOEXEC)
    away = new_network()
    try:
        enter_network(home)
        name = f"/proc/self/fd/{away}"
        run_batch("ip", [f"link add speed0 mtu {MTU} type veth peer name speed1 mtu {MTU} netns {name}"], [away])
        for namespace, end, address in zip((home, away), ("speed0", "speed1"), _ENDS, strict=True):
            enter_network(namespace)
            run_batch("ip", [f"address add {address}/24 dev {end}", f"link set {end} up"])
            run_batch("tc", [f"qdisc add dev {end} root tbf {_RATE} burst {BURST} limit {QUEUE}"])
        return _move(Endpoint(home, _ENDS[0]), Endpoint(away, _ENDS[1]))
    finally:
        enter_network(home)
        os.close(away)
        os.close(home)


def _move(sender: Endpoint, receiver: Endpoint) -> float:
    transfer = connect(sender, receiver)
    try:
        for _ in range(2):  # first while the window grows
            begin, before = time.process_time(), transfer.total
            while time.process_time() < begin + MOVED_S / 2:
                transfer.move()
        return (transfer.total - before) / (time.process_time() - begin)
    finally:
        transfer.close()
