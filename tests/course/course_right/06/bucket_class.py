class Bucket:
    def __init__(self):
        self.parameters, self.ready, self.work, self.flat = [], 0, None, None

    @property
    def nbytes(self):
        return sum(p.numel() * p.element_size() for p in self.parameters)

    def mark(self, parameter):
        self.ready += 1
        if self.ready == len(self.parameters):
            self.flat = torch.cat([p.grad.view(-1) for p in self.parameters]).div_(dist.get_world_size())
            self.work = dist.all_reduce(self.flat, async_op=True)

    def unpack(self):
        self.work.wait()
        offset = 0
        for p in self.parameters:
            p.grad = self.flat[offset : offset + p.numel()].view(p.shape).clone()
            offset += p.numel()
        self.ready, self.work, self.flat = 0, None, None


class OverlappedGradients:
    def __init__(self, model, bucket_bytes):
        self.buckets = [Bucket()]
        for p in list(model.parameters())[::-1]:
            if self.buckets[-1].nbytes >= bucket_bytes:
                self.buckets.append(Bucket())
            self.buckets[-1].parameters.append(p)
        for bucket in self.buckets:
            for p in bucket.parameters:
                p.register_post_accumulate_grad_hook(bucket.mark)

    def finish(self):
        for bucket in self.buckets:
            bucket.unpack()
