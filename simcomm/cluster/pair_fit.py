"""The terms of TCP as a pair of hosts shows them, and never the collective that they predict.

Each number comes from one kind of probe: overheads and processor time from the smallest messages, which a link's burst
lets through, the send buffer from when large sends return, the window from what TCP says is under way. What Linux hands
to a link in one piece is known: what is left of a message then waits behind what others have handed over meanwhile
("TCP small queues", Documentation/networking/ip-sysctl.rst, tcp_limit_output_bytes). The goodput is not fitted:
headers and the link's bandwidth give it, and where what was measured is further from it than ``MOST_OFF``, something
else limits the pair and nothing is predicted from it.
"""

from math import ceil, inf

from collectives.errors import InputError
from collectives.records.calibration import read_curve
from collectives.records.pair_probes import PairProbes, Points
from collectives.transport import TcpTerms, Transport

LARGE = 4 << 20  # bytes: from here on a send has to wait for the send buffer
MOST_OFF = 0.01  # of the goodput that the specification gives
HEADER = 66.0  # bytes a packet: 14 of Ethernet, 20 of IPv4 (RFC 791), 32 of TCP with time stamps (RFC 9293, RFC 7323)
INSIDE_MTU = 52.0  # of those, what counts as part of the MTU
PIECE = 65536 - 320  # bytes that Linux hands to a link in one piece: GSO_LEGACY_MAX_SIZE less MAX_TCP_HEADER


def fit_pair(probes: PairProbes, ranks: int | None = None) -> Transport:
    """Return the transport of a pair of hosts for so many ranks in all, or for as many as the largest crowd had.

    One of the smallest messages in a chain takes the overhead, being posted, and a core at its arrival; a chain of one
    takes ``start`` and a notice more; a step in which both sides send takes ``exchange_overhead`` more. What a send
    leaves behind when it returns is what arrives later than that.

    Raises InputError where the pair's goodput is not what its links should give.
    """
    payload = probes.mtu - INSIDE_MTU
    rate = probes.bandwidth * payload / (payload + HEADER)
    _check_goodput(probes, rate)
    small = min(nbytes for nbytes, _, _ in probes.chains)
    hop, first = _chain(probes, small)
    on_wire = small + ceil(small / payload) * HEADER
    hop = max(0.0, hop - max(0.0, on_wire - probes.burst) / probes.bandwidth)
    post, arrival, follow = _processor(probes, hop)
    overhead = hop - post - arrival
    notice = min(overhead, max(0.0, first - hop - arrival))
    terms = TcpTerms(
        start=_start(probes, first - hop - arrival - notice, ranks),
        notice_overhead=notice,
        exchange_overhead=max(0.0, _at(probes.exchange, small) - hop - post - arrival),
        cores=probes.cores or inf,
        post_cpu=post,
        arrival_cpu=arrival,
        follow_cpu=follow,
        own_share=_own_share(probes, post + arrival),
        send_buffer=_left_behind(probes, rate),
        window=float(probes.in_flight or probes.window),
        piece=PIECE // payload * payload,
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


def _chain(probes: PairProbes, small: int) -> tuple[float, float]:
    """Return the seconds of a hop of ``small`` bytes that follows another, and of a chain of one.

    Of the hop the least of several estimates counts: what disturbs a chain only makes it longer.
    """
    seconds = {hops: found for nbytes, hops, found in probes.chains if nbytes == small}
    further = [(found - seconds[1]) / (hops - 1) for hops, found in seconds.items() if hops > 1]
    return min(found for found in further if found > 0), seconds[1]


def _processor(probes: PairProbes, hop: float) -> tuple[float, float, float]:
    """Return the seconds of a core for posting a message, for its arrival, and for that of one which follows another.

    Of ``cores`` that are never idle n pairs of ranks take 2 n messages a step, each of which is posted by both sides,
    as is its notice, and arrives, as does its notice. Of several messages that each rank sends at once one more takes
    being posted and following. Of many messages that are posted at once, by one rank alone, one more takes either what
    it takes to post it or, if that is more, its share of all. None of it was measured where there is no crowd.
    """
    if not probes.crowd or not probes.cores:
        return 0.0, 0.0, inf
    pairs, step = max(probes.crowd)
    both = min(probes.cores * step / (2 * pairs) / 2, hop)
    further = both
    if len(probes.crowd_many) > 1:
        (one, alone), *_, (several, together) = sorted(probes.crowd_many)
        each = probes.cores * (together - alone) / (several - one) / (2 * pairs) / 2
        further = min(max(0.0, each), both)
    (few, sooner), *_, (many, later) = sorted(probes.at_once)
    post = min(max(0.0, (later - sooner) / (many - few)), further)
    return post, both - post, further - post


def _start(probes: PairProbes, awake: float, ranks: int | None) -> float:
    """Return the seconds of a core before a rank's first message, of so many ranks.

    Of no more ranks than cores, which wait for their start awake, it is ``awake``. Others sleep until then: all of them
    wake at once and take turns on the cores. Between two crowds that were measured it is on the line between them. A
    crowd takes no longer than a larger one: what disturbs the smaller one only made it longer.
    """
    awake = max(0.0, awake)
    asleep, least = list[tuple[int, float]](), float("inf")
    for crowd, seconds in sorted(probes.waking, reverse=True):
        if crowd <= probes.cores:  # it was awake
            continue
        least = min(least, seconds)
        asleep.insert(0, (crowd, max(awake, probes.cores * least / crowd)))
    if not asleep:
        return awake
    ranks = asleep[-1][0] if ranks is None else ranks
    return read_curve([(float(probes.cores), awake), *asleep], min(ranks, asleep[-1][0]))


def _own_share(probes: PairProbes, both: float) -> float:
    """Return what a message costs in gloo's own collectives, over ``both``; 1 where that was not measured.

    A barrier and an all_gather of so many messages, each with its notice, keep all cores busy; what starts them is the
    same. They post in C++, which takes no more than posting in Python.
    """
    if not probes.own or both <= 0:
        return 1.0
    (few, sooner), *_, (many, later) = sorted(probes.own)
    own = probes.cores * (later - sooner) / (many - few) / 2
    return min(1.0, max(0.0, own / both))


def _at(points: Points, nbytes: int) -> float:
    """Return the seconds at this size."""
    return dict(points)[nbytes]


def _left_behind(probes: PairProbes, rate: float) -> float:
    """Return the bytes that are still to come when a large send returns, the mean over sizes."""
    arrived = dict(probes.arrived)
    found = [(arrived[nbytes] - done) * rate for nbytes, done in probes.send_done if nbytes >= LARGE]
    return max(0.0, sum(found) / len(found))
