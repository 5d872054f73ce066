"""From a schedule on a cluster to what the kernel runs: plans, routes, private links, and faults."""
