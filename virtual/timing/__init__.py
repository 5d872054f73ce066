"""Simulate the times of collectives and messages while a program runs."""
