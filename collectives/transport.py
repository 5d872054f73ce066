"""What software adds to a network: numbers that both wings name."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Transport:
    """Costs on top of the wire. The default is ideal: rendezvous at no cost, no overhead, the full wire rate."""

    name: str = "ideal"
    overhead: float = 0.0  # seconds a message spends in software, besides the latency of its route
    goodput: float = 1.0  # share of the wire's rate that the payload gets
    gamma: float = 0.0  # seconds per byte reduced, copied or scaled by a rank
    source: str = "by definition"
