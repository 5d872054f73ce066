"""Ranks' operations and their matches: the k-th collective of a group, a message by source, destination and tag."""
