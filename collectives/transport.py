"""Describe the costs of communication software, which add to those of the network."""

from dataclasses import dataclass, fields, replace
from math import inf

from collectives.checks import check_bool, check_number, check_whole_number
from collectives.errors import InputError
from collectives.quoting import quote


@dataclass(frozen=True)
class TcpTerms:
    """The parameters of the model of gloo over TCP. Most parameters have a value that disables their effect.

    Packets have the sizes that a Linux traffic shaper counts: without preamble, checksum and interframe gap. At an MTU
    of 1500 bytes, a packet with 1448 bytes of payload takes 1514 bytes. Raise InputError for an invalid value.

    >>> TcpTerms().packet, TcpTerms(header=0).packet
    (1514.0, 1448.0)
    """

    pipeline: bool = True  # ranks post and await in the executor's order; off: step by step
    receive_ready: bool = True  # notifications of posted receives travel; off: the sender knows at once
    start: float = 0.0  # CPU seconds before a rank posts its first message
    receive_ready_overhead: float = 0.0  # seconds that a notification spends in software
    exchange_overhead: float = 0.0  # additional seconds of a rank's thread for a step that both sends and receives
    cores: float = inf  # CPU cores that the software of all ranks shares; off: infinite
    post_cpu: float = 0.0  # CPU seconds to post one send or receive; a rank posts them one after the other
    arrival_cpu: float = 0.0  # CPU seconds from the arrival of a message or notification until the rank knows
    wake_cpu: float = 0.0  # CPU seconds before a rank continues after waiting for a message
    own_share: float = 1.0  # factor on post_cpu, arrival_cpu and wake_cpu in gloo's own (C++) collectives; off: 1
    own_start: float = 0.0  # additional CPU seconds before the first message of a gloo collective, on gloo's thread
    send_buffer: float = inf  # bytes that may be in transit when a send returns; off: 0
    window: float = inf  # bytes in flight per connection; off: infinite
    piece: float = inf  # bytes of a connection that wait for its first link or are on it; off: infinite
    payload: float = 1448.0  # bytes of data in a packet
    header: float = 66.0  # bytes of headers in a packet; off: 0
    burst: float = 0.0  # bytes that an idle link sends at once; off: 0
    acknowledgement: float = 66.0  # bytes of an acknowledgement, sent in the other direction; off: 0
    packets_acknowledged: float = 2.0  # packets that each acknowledgement covers

    def __post_init__(self) -> None:
        for field in fields(self):
            if field.type in ("bool", bool):
                check_bool(field.name, getattr(self, field.name))
            elif getattr(self, field.name) != inf:
                check_number(field.name, getattr(self, field.name), at_least=0)
        for name in ("window", "piece", "payload", "packets_acknowledged"):
            check_number(name, min(getattr(self, name), 1e300), above=0)
        if self.cores != inf:
            check_whole_number("cores", self.cores, at_least=1)

    @property
    def packet(self) -> float:
        """The size of a full packet with its headers, in bytes."""
        return self.payload + self.header


@dataclass(frozen=True)
class Transport:
    """The software costs of messages. The default is ideal: no overhead, the full line rate, and no cost of rendezvous.

    If ``tcp`` is set, messages are simulated as gloo sends them over TCP. Otherwise, each message is sent as a whole
    after both ranks have posted it. Raise InputError for a negative time, or if ``goodput`` is not in (0, 1].

    >>> Transport("my-nic", overhead=3e-6, goodput=0.9, gamma=1e-10).overhead
    3e-06
    """

    name: str = "ideal"
    overhead: float = 0.0  # seconds of a message in software, in addition to the latency of its route
    goodput: float = 1.0  # share of the line rate that the payload gets
    gamma: float = 0.0  # seconds per byte reduced, copied or scaled by a rank
    source: str = "by definition"
    tcp: TcpTerms | None = None

    def __post_init__(self) -> None:
        check_number("overhead", self.overhead, "seconds", at_least=0)
        check_number("gamma", self.gamma, "seconds per byte", at_least=0)
        if check_number("goodput", self.goodput, above=0) > 1:
            raise InputError(f"goodput must be a share of the line rate in (0, 1], not {quote(self.goodput)}")

    def for_gloo(self) -> "Transport":
        """Return a copy with the costs of gloo's own collectives, which post and await messages in C++.

        >>> Transport(tcp=TcpTerms(post_cpu=4e-5, arrival_cpu=2e-5, own_share=0.5)).for_gloo().tcp.post_cpu
        2e-05
        """
        if self.tcp is None:
            return self
        tcp, share = self.tcp, self.tcp.own_share
        post, arrival, wake = (share * seconds for seconds in (tcp.post_cpu, tcp.arrival_cpu, tcp.wake_cpu))
        start = tcp.start + tcp.own_start
        return replace(self, tcp=replace(tcp, start=start, post_cpu=post, arrival_cpu=arrival, wake_cpu=wake))
