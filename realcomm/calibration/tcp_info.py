"""What the kernel says of the TCP connections of this process (``TCP_INFO``, Linux)."""

import os
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

_LENGTH = 256  # of what is asked for; older kernels fill less
_ESTABLISHED = 1
_MSS, _UNACKED, _CWND, _MIN_RTT, _SEND_WINDOW = 16, 24, 80, 148, 228  # offsets in struct tcp_info, <linux/tcp.h>


class TcpInfo(NamedTuple):
    """The state of one connection."""

    window: int  # bytes that may be under way: congestion window, capped by the receiver's
    in_flight: int  # bytes sent and not acknowledged
    min_rtt: float  # seconds


def read_connections() -> list[TcpInfo]:
    """Return the state of all TCP connections that this process has open to other addresses than its own."""
    found: list[TcpInfo] = []
    for name in [file.name for file in Path("/proc/self/fd").iterdir()]:
        with suppress(OSError, ValueError):
            if str(Path("/proc/self/fd", name).readlink()).startswith("socket:"):
                found += _read(int(name))
    return found


def _read(file: int) -> Iterator[TcpInfo]:
    with socket.socket(fileno=os.dup(file)) as connection:
        if connection.family == socket.AF_INET and connection.type == socket.SOCK_STREAM:
            if connection.getsockname()[0] == connection.getpeername()[0]:
                return
            raw = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _LENGTH).ljust(_LENGTH, b"\0")
            mss, unacked, cwnd, min_rtt, wnd = (
                struct.unpack_from("=I", raw, at)[0] for at in (_MSS, _UNACKED, _CWND, _MIN_RTT, _SEND_WINDOW)
            )
            if raw[0] == _ESTABLISHED:
                yield TcpInfo(min(cwnd * mss, wnd or cwnd * mss), unacked * mss, min_rtt / 1e6)


@contextmanager
def sampling_in_flight(every_s: float = 5e-3) -> Iterator[list[int]]:
    """Look every so often within the context; the list has the bytes that the busiest connection had under way."""
    samples, is_over = list[int](), threading.Event()

    def look() -> None:
        while not is_over.wait(every_s):
            samples.append(max((each.in_flight for each in read_connections()), default=0))

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield samples
    finally:
        is_over.set()
        thread.join()
