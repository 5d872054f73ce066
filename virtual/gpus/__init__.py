"""Programs that ask for CUDA: devices are renamed on their way into torch, and values come from the CPU.

A rank's clock is that of its compute stream; its host is taken to run ahead. So a wait for a collective that only holds
back the stream, and one that holds back the rank, are the same.
"""
