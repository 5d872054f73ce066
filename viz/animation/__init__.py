"""Animate a trace: messages move over a drawing of the network."""
