"""Diagnose programs on virtual ranks: what went wrong, on which ranks and lines, and how to fix it."""
