"""A cluster's network on this machine: a network namespace for each host, bridges, links of limited rate."""
