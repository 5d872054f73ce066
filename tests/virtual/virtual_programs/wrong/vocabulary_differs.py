# kind: shape
# ranks: 3
# Each rank builds its vocabulary from its own part of the text.
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
texts = ["a b c", "a b", "a b c"]
words = sorted(set(texts[dist.get_rank()].split()))  # fix: words = sorted(set(" ".join(texts).split()))
embedding = torch.nn.Embedding(len(words), 4)
for p in embedding.parameters():
    dist.broadcast(p.data, src=0)  # reported: 0, 2; 1
