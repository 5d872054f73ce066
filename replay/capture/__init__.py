"""Record the calls and computing of real ranks, through replaced kernels of torch's operators.

Every collective and message of ``torch.distributed``, from Python and C++, is an operator of c10d. Its kernel is
replaced by one that records the call and forwards it, so groups, backends and results stay the same.
"""
