"""The costs that software adds to a network."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Transport:
    """Costs on top of the wire. The default is ideal: rendezvous at no cost, no overhead, the full wire rate.

    >>> Transport("my-nic", overhead=3e-6, goodput=0.9, gamma=1e-10).overhead
    3e-06
    """

    name: str = "ideal"
    overhead: float = 0.0  # seconds a message spends in software, besides the latency of its route
    goodput: float = 1.0  # share of the wire's rate that the payload gets
    gamma: float = 0.0  # seconds per byte reduced, copied or scaled by a rank
    source: str = "by definition"
