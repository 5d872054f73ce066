"""Record the calls and compute times of real ranks by replacing the kernels of torch's operators.

Every collective and message of ``torch.distributed``, from Python and C++, is an operator of c10d. The replaced kernel
records the call and forwards it, so groups, backends and results stay the same.
"""
