"""Measure the links of an emulated network before ranks use them."""

import os
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import linear_regression

from realcomm.emulation.plan import BURST, FRAME, MTU, PAYLOAD, QUEUE, run_batch
from realcomm.launching.namespaces import OWN_NETWORK, enter_network, new_network

WARM_UP_S = 0.1  # excluded, because the connection's window still grows
MEASURED_S = 0.25
LOOK_S = 2e-3  # between looks at all sockets
CONNECT_S = 5.0
_CHUNK = bytes(1 << 18)
_SEND_BUFFER = 1 << 20  # requested bytes; the system may limit them
_drain = bytearray(1 << 18)
MOVED_S = 0.1  # CPU seconds
_ENDS = ("10.99.0.1", "10.99.0.2")
_RATE = "rate 100gbit"  # faster than any core


@dataclass(frozen=True)
class Endpoint:
    """One end of a transfer: the open file of its network namespace, and its IPv4 address."""

    namespace: int
    address: str


@dataclass
class TimedTransfer:
    """A TCP connection that records the number of received bytes over time."""

    sender: socket.socket
    receiver: socket.socket
    total: int = 0
    arrived: list[tuple[float, int]] = field(default_factory=list)  # (time, total bytes)

    def move(self) -> None:
        """Send until the socket's buffer is full, then read the received data."""
        try:
            while self.sender.send(_CHUNK) == len(_CHUNK):
                pass
        except BlockingIOError:
            pass
        try:
            while count := self.receiver.recv_into(_drain):
                self.total += count
        except BlockingIOError:
            pass
        self.arrived.append((time.perf_counter(), self.total))

    def speed(self, since: float) -> float:
        """Return the rate of received bytes after time ``since``, in bytes/s, as the slope of a least-squares line."""
        times, received = zip(*(point for point in self.arrived if point[0] >= since), strict=True)
        return linear_regression(times, received).slope

    def close(self) -> None:
        self.sender.close()
        self.receiver.close()


def expected_goodput(bandwidth: float) -> float:
    """Return a link's TCP goodput in bytes/s: its bandwidth without the headers of Ethernet, IPv4 and TCP.

    >>> round(expected_goodput(50e6) / 1e6, 2)
    47.82
    """
    return bandwidth * PAYLOAD / FRAME


def measure_goodput(pairs: Sequence[tuple[Endpoint, Endpoint]], seconds: float = MEASURED_S) -> list[float]:
    """Return the goodput in bytes/s from each sender to its receiver, while all pairs send at once.

    The pairs must not share a rate-limited link. Raise OSError if a sender cannot reach its receiver.
    """
    home = os.open(OWN_NETWORK, os.O_RDONLY | os.O_CLOEXEC)
    transfers: list[TimedTransfer] = []
    try:
        try:
            for sender, receiver in pairs:
                transfers.append(connect(sender, receiver))
        finally:
            enter_network(home)
        begin = time.perf_counter()
        while time.perf_counter() < begin + WARM_UP_S + seconds:
            for transfer in transfers:
                transfer.move()
            time.sleep(LOOK_S)
        return [transfer.speed(begin + WARM_UP_S) for transfer in transfers]
    finally:
        for transfer in transfers:
            transfer.close()
        os.close(home)


def connect(sender: Endpoint, receiver: Endpoint) -> TimedTransfer:
    """Connect two namespaces by TCP. Afterwards this process is in the sender's namespace."""
    enter_network(receiver.namespace)
    with socket.socket() as listener:
        listener.settimeout(CONNECT_S)
        listener.bind((receiver.address, 0))
        listener.listen()
        enter_network(sender.namespace)
        sending = socket.socket()
        try:
            sending.settimeout(CONNECT_S)
            sending.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER)
            sending.connect(listener.getsockname())
            receiving, _ = listener.accept()
        except OSError:
            sending.close()
            raise
    sending.setblocking(False)
    receiving.setblocking(False)
    return TimedTransfer(sending, receiving)


def measure_speed() -> float:
    """Return the bytes that a TCP connection on this machine can transfer per second of CPU time.

    The connection passes through token buckets with packets of ``MTU`` bytes, as on an emulated link. Other processes
    hardly affect the result, because only this process's CPU time counts. The process must have only one thread. It
    returns to its network namespace afterwards.
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
        for _ in range(2):  # in the first pass, the window still grows
            begin, before = time.process_time(), transfer.total
            while time.process_time() < begin + MOVED_S / 2:
                transfer.move()
        return (transfer.total - before) / (time.process_time() - begin)
    finally:
        transfer.close()
