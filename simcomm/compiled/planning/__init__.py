"""Convert a schedule on a cluster to the kernel's input: plans, routes, private links and faults."""
