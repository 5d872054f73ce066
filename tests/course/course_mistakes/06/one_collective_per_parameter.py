# reported: OverlappedGradients | 27 all_reduces, not 15 | self.works.append((dist.all_reduce(
class OverlappedGradients:
    def __init__(self, model: nn.Module, bucket_bytes: int) -> None:
        self.works = []
        for parameter in model.parameters():
            parameter.register_post_accumulate_grad_hook(self.begin)

    def begin(self, parameter):
        self.works.append((dist.all_reduce(parameter.grad, async_op=True), parameter))

    def finish(self) -> None:
        for work, parameter in self.works:
            work.wait()
            parameter.grad /= dist.get_world_size()
        self.works = []
