# reported: OverlappedGradients | hook of a bucket's last gradient | dist.all_reduce(flat)
class OverlappedGradients:
    def __init__(self, model: nn.Module, bucket_bytes: int) -> None:
        self.buckets, bucket, size = [], [], 0
        for parameter in reversed(list(model.parameters())):
            bucket.append(parameter)
            size += parameter.numel() * parameter.element_size()
            if size >= bucket_bytes:
                self.buckets.append(bucket)
                bucket, size = [], 0
        if bucket:
            self.buckets.append(bucket)

    def finish(self) -> None:
        for bucket in self.buckets:
            flat = torch.cat([parameter.grad.flatten() for parameter in bucket])
            dist.all_reduce(flat)
            flat /= dist.get_world_size()
            for parameter, part in zip(bucket, flat.split([parameter.numel() for parameter in bucket])):
                parameter.grad.copy_(part.view_as(parameter.grad))
