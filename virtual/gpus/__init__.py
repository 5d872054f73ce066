"""Run programs that ask for CUDA on the CPU. A rank's clock is the time of its compute stream; its host runs ahead."""
