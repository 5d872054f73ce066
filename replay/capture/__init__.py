"""What real ranks call and compute, recorded while they run as they are: by the kernels of torch's own operators.

Every collective and message of ``torch.distributed``, from Python and C++ alike, goes through an operator of c10d. Its
kernel is replaced by one that notes the call and passes on, so groups, backends and results stay what they are.
"""
