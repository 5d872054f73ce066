"""Recordings in the formats of others: Chakra's execution traces in and out, profiles of torch in."""
