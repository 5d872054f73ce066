"""Run CUDA programs on the CPU. Each rank has a clock for its GPU, and one for its host, which may run ahead."""
