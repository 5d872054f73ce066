"""Record the communication calls and compute times of real ranks.

Python and C++ code run each collective, send and receive of ``torch.distributed`` as an operator of c10d. The recorder
registers a kernel for each operator, which records the call and runs the original kernel. Results do not change.
"""
