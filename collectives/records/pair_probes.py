"""What was measured between two hosts with links of a known bandwidth, to calibrate the transport ``gloo-tcp``."""

from dataclasses import dataclass, field

Points = list[tuple[int, float]]  # (nbytes, seconds): medians of several repetitions


@dataclass(frozen=True)
class PairProbes:
    """Messages between two hosts on one switch, one rank each, whose links and shapers are known.

    ``send_done`` and ``arrived`` are of the same messages, each alone, the receive posted long before: seconds from the
    sender's posting until its own wait returned, and until the receiver's did.
    """

    bandwidth: float  # bytes/s of every link in each direction, as the shaper counts
    mtu: int
    burst: int  # bytes that a link's token bucket saves
    one_way: Points  # half of there and back, where the second sends what the first brought
    chains: list[tuple[int, int, float]]  # (nbytes, hops, seconds): so many dependent hops, first start to last end
    exchange: Points  # a step in which both send and receive, as one of several that depend on each other
    send_done: Points
    arrived: Points
    window: int  # bytes that the connection may have under way: congestion window, capped by the receiver's
    in_flight: int  # bytes not acknowledged in the middle of the largest message: a median of samples
    rtt: float  # seconds, the least of the connection's round trips
    send_buffer: int  # bytes: most of nbytes - goodput * send_done
    reduction: Points  # one addition by each rank at once
    at_once: Points = field(default_factory=list)  # (messages of the smallest size, one way): posted in one step
    crowd: Points = field(default_factory=list)  # (pairs of ranks): an exchange of the smallest size by all at once
    crowd_many: Points = field(default_factory=list)  # (messages at once): the same of the largest crowd, by messages
    waking: Points = field(default_factory=list)  # (ranks): what a crowd's first step takes more, whose ranks slept
    own: Points = field(default_factory=list)  # (messages of all ranks): gloo's own barrier and all_gather, by as many
    cores: int = 0  # of the machine, which all ranks share; 0 where that was not measured

    @property
    def goodput(self) -> float:
        """Bytes/s of a link that are left for TCP's data.

        Of a full frame a shaper counts 14 bytes of Ethernet header and the MTU, which holds 20 bytes of IPv4 header
        (RFC 791) and 32 of TCP with time stamps (RFC 9293, RFC 7323).
        """
        return self.bandwidth * (self.mtu - 52) / (self.mtu + 14)
