"""Collectives and calibrations measured on real ranks."""
