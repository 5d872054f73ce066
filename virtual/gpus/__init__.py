"""Run programs that ask for CUDA: device arguments are translated, and values are computed on the CPU.

A rank's clock is the time of its compute stream, and its host runs ahead. Therefore, a wait that blocks only the stream
advances the clock like a wait that blocks the host.
"""
