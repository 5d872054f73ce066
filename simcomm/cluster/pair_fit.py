"""The terms of TCP as a pair of hosts shows them, and never the collective that they predict.

Each number comes from one kind of probe: overheads from 4 KiB, the send buffer from when large sends return, the window
from what TCP says is under way. The goodput is not fitted: headers and the link's bandwidth give it, and where what was
measured is further from it than ``MOST_OFF``, something else limits the pair and nothing is predicted from it.
"""

from math import ceil

from collectives.errors import InputError
from collectives.records.pair_probes import PairProbes, Points
from collectives.transport import TcpTerms, Transport

SMALL = 4096  # bytes: a message that is mostly overhead
LARGE = 4 << 20  # bytes: from here on a send has to wait for the send buffer
MOST_OFF = 0.01  # of the goodput that the specification gives
HEADER = 66.0  # bytes a packet: 14 of Ethernet, 20 of IPv4 (RFC 791), 32 of TCP with time stamps (RFC 9293, RFC 7323)
INSIDE_MTU = 52.0  # of those, what counts as part of the MTU


def fit_pair(probes: PairProbes) -> Transport:
    """Return the transport of a pair of hosts. Raise InputError where its goodput is not what its links should give.

    A message of 4 KiB in a chain takes the overhead and its bytes; a chain of one takes ``start`` and a notice more; a
    step in which both sides send takes ``exchange_overhead`` more. What a send leaves behind when it returns is what
    arrives later than that.
    """
    payload = probes.mtu - INSIDE_MTU
    rate = probes.bandwidth * payload / (payload + HEADER)
    _check_goodput(probes, rate)
    hop, first = _chain(probes)
    on_wire = SMALL + ceil(SMALL / payload) * HEADER
    overhead = max(0.0, hop - max(0.0, on_wire - probes.burst) / probes.bandwidth)
    notice = min(overhead, max(0.0, first - hop))
    terms = TcpTerms(
        start=max(0.0, first - hop - notice),
        notice_overhead=notice,
        exchange_overhead=max(0.0, _at(probes.exchange, SMALL) - hop),
        send_buffer=_left_behind(probes, rate),
        window=float(probes.in_flight or probes.window),
        payload=payload,
        header=HEADER,
        burst=float(probes.burst),
    )
    nbytes, seconds = max(probes.reduction, default=(1, 0.0))
    return Transport("gloo-tcp", overhead, gamma=seconds / nbytes, source="a pair of hosts", tcp=terms)


def _check_goodput(probes: PairProbes, rate: float) -> None:
    """Raise InputError unless the largest messages arrive at ``rate`` bytes/s."""
    (small, sooner), *_, (large, later) = sorted(point for point in probes.arrived if point[0] >= 1 << 20)
    found = (large - small) / (later - sooner)
    if abs(found / rate - 1) > MOST_OFF:
        raise InputError(
            f"the pair of hosts carries {found / 1e6:.4g} MB/s of data, but its links of "
            f"{probes.bandwidth * 8 / 1e6:.4g} Mbit/s should give {rate / 1e6:.4g} MB/s: more than {MOST_OFF:.0%} off, "
            "so that something else limits it; a busy machine, or a bandwidth that it cannot bear"
        )


def _chain(probes: PairProbes) -> tuple[float, float]:
    """Return the seconds of a hop of 4 KiB that follows another, and of a chain of one.

    Of the hop the least of several estimates counts: what disturbs a chain only makes it longer.
    """
    seconds = {hops: found for nbytes, hops, found in probes.chains if nbytes == SMALL}
    further = [(found - seconds[1]) / (hops - 1) for hops, found in seconds.items() if hops > 1]
    return min(_at(probes.one_way, SMALL), *(found for found in further if found > 0)), seconds[1]


def _at(points: Points, nbytes: int) -> float:
    """Return the seconds at this size."""
    return dict(points)[nbytes]


def _left_behind(probes: PairProbes, rate: float) -> float:
    """Return the bytes that are still to come when a large send returns, the mean over sizes."""
    arrived = dict(probes.arrived)
    found = [(arrived[nbytes] - done) * rate for nbytes, done in probes.send_done if nbytes >= LARGE]
    return max(0.0, sum(found) / len(found))
