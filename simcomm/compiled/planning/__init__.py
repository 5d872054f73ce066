"""Turn a schedule on a cluster into the kernel's input: plans, routes, private links and faults."""
