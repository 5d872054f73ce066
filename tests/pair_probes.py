"""Compute probes of a pair of hosts from TCP terms, which a fit must reproduce."""

from collectives.records.calibration import CrowdRound, PairProbes

RATE = 50e6 / 8
GOODPUT = RATE * 1448 / 1514
SIZES = (1 << 20, 4 << 20, 16 << 20)
PAIR = PairProbes(
    bandwidth=RATE,
    mtu=1500,
    burst=4096,
    one_way=[(4096, 240e-6)],
    chains=[(64, hops, 450e-6 + hops * 200e-6) for hops in (1, 5, 13)],
    exchange=[(64, 450e-6)],
    send_done=[(nbytes, max(0.001, (nbytes - 1e6) / GOODPUT)) for nbytes in SIZES],
    arrived=[(nbytes, nbytes / GOODPUT) for nbytes in SIZES],
    window=500_000,
    in_flight=147_000,
    rtt=1e-4,
    send_buffer=1_000_000,
    reduction=[(1 << 16, 1e-3), (1 << 20, (1 << 20) * 3e-10)],
    at_once=[(1, 3e-4), (4, 3e-4 + 3 * 30e-6), (12, 3e-4 + 11 * 30e-6)],
    crowds=[
        CrowdRound(8, 8 * (2 * 70e-6 + 50e-6) / 2, 8 * 2 * 70e-6 / 2, 0.0)
    ],  # of two messages with notifications; two cores
    cores=2,
)
