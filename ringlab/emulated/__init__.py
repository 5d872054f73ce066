"""Scenarios on networks that are built on this machine."""
