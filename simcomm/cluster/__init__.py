"""Define clusters: hosts, switches and links, with routing and placement of ranks."""
