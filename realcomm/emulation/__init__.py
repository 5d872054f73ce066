"""Emulate a cluster's network on this machine: network namespaces, bridges, and rate-limited links."""
