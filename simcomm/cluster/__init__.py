"""Clusters: hosts, switches and links, how they are built, routed and filled with ranks."""
