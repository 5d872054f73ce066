"""Define the rules that both engines share: link sharing, faults and jitter."""
