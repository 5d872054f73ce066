"""Run programs that ask for CUDA: device arguments are translated, and values are computed on the CPU.

A rank's clock follows its compute stream, and its host runs ahead. A wait that blocks only the stream therefore
takes the same time as a wait that blocks the rank.
"""
