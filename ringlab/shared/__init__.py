"""Shared by commands: options, progress, output, failures, and the base of answers."""
