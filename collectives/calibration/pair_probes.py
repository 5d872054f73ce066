"""What was measured between two hosts with links of a known bandwidth, to calibrate the transport ``gloo-tcp``."""

from dataclasses import dataclass, field, replace
from typing import Any

Points = list[tuple[int, float]]  # (nbytes, seconds): medians of several repetitions


PARTS = 4  # shares of the rounds whose predictions are compared


@dataclass(frozen=True)
class CrowdRound:
    """What more ranks than cores, on two hosts, took in one of several rounds that are spread over a calibration.

    Each rank sends messages of a few bytes to ranks on the other host, to another in each step, and receives as many.
    """

    ranks: int
    step: float  # seconds of a step that follows others, in which each rank sends one message and receives one
    further: float  # seconds more for each further message that every rank sends in a step
    waking: float  # seconds that the first steps take more, whose ranks slept until then
    own: Points = field(default_factory=list)  # (messages of all ranks): gloo's own barrier and all_gather, by as many


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
    at_once: Points = field(default_factory=list)  # (messages of the smallest size in one step): the sender's CPU time
    crowds: list[CrowdRound] = field(default_factory=list)  # rounds of all crowds
    cores: int = 0  # of the machine, which all ranks share; 0 where that was not measured
    software: float = 1.0  # times as long as measured software is to take: what a prediction owes to it

    @property
    def parts(self) -> list["PairProbes"]:
        """The same with a share of the crowds' rounds each; none where there are not enough.

        >>> alone = PairProbes(6.25e6, 1500, 4096, [], [], [], [], [], 0, 0, 0.0, 0, [])
        >>> crowds = [CrowdRound(8, 1e-4, 2e-5, waking=1e-3 * number) for number in range(8)]
        >>> [one.waking for one in replace(alone, crowds=crowds).parts[1].crowds], alone.parts
        ([0.001, 0.005], [])
        """
        if len(self.crowds) < 2 * PARTS:
            return []
        return [replace(self, crowds=self.crowds[part::PARTS]) for part in range(PARTS)]

    def with_crowds(self, rounds: list[CrowdRound]) -> "PairProbes":
        """Return the same with more rounds of crowds."""
        return replace(self, crowds=[*self.crowds, *rounds])

    @property
    def goodput(self) -> float:
        """Bytes/s of a link that are left for TCP's data.

        Of a full frame a shaper counts 14 bytes of Ethernet header and the MTU, which holds 20 bytes of IPv4 header
        (RFC 791) and 32 of TCP with time stamps (RFC 9293, RFC 7323).
        """
        return self.bandwidth * (self.mtu - 52) / (self.mtu + 14)


def read_pair(content: dict[str, Any]) -> PairProbes:
    """Return the pair that JSON holds, as ``dataclasses.asdict`` writes it.

    >>> from dataclasses import asdict
    >>> crowds = [CrowdRound(8, 1e-4, 2e-5, 1e-3)]
    >>> alone = PairProbes(6.25e6, 1500, 4096, [], [], [], [], [], 0, 0, 0.0, 0, [], crowds=crowds)
    >>> read_pair(asdict(alone)) == alone
    True
    """
    from pydantic import TypeAdapter  # slow to import

    return TypeAdapter(PairProbes).validate_python(content, extra="forbid")
