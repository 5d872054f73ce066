# reported: OverlappedGradients | parameter 0 | elsewhere: bucket, size = [], 0 ;; self.missing, self.begun = ;; for parameter in reversed(
class OverlappedGradients:
    def __init__(self, model: nn.Module, bucket_bytes: int) -> None:
        self.buckets, bucket, size = [], [], 0
        for parameter in reversed(list(model.parameters())):
            bucket.append(parameter)
            size += parameter.numel() * parameter.element_size()
            if size >= bucket_bytes:
                self.buckets.append(bucket)
                bucket, size = [], 0
        self.missing, self.begun = [len(bucket) for bucket in self.buckets], []
        for number, members in enumerate(self.buckets):
            for parameter in members:
                parameter.register_post_accumulate_grad_hook(lambda _, number=number: self.arrived(number))

    def arrived(self, number):
        self.missing[number] -= 1
        if self.missing[number] == 0:
            bucket = self.buckets[number]
            flat = torch.cat([parameter.grad.flatten() for parameter in bucket])
            self.begun.append((dist.all_reduce(flat, async_op=True), flat, bucket))

    def finish(self) -> None:
        for work, flat, bucket in self.begun:
            work.wait()
            flat /= dist.get_world_size()
            for parameter, part in zip(bucket, flat.split([parameter.numel() for parameter in bucket])):
                parameter.grad.copy_(part.view_as(parameter.grad))
        self.missing, self.begun = [len(bucket) for bucket in self.buckets], []
