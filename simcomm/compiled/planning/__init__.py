"""Convert a schedule on a cluster to the kernel's input: plans, routes and faults."""
