"""Animations of a Trace: messages move over the topology."""
