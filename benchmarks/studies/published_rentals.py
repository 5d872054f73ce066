"""Stories of rented machines: what their sources publish, beside what is predicted from one GPU's rate.

A prediction knows the job, the machine and the rate of one GPU. What a source leaves out is said in ``assumed``.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

from collectives.training.parallelism import Parallelism
from simcomm.mesh.interconnect import ScalingNode
from simcomm.mesh.job import TrainingJob
from simcomm.mesh.prediction import StepPrediction
from simcomm.renting.rentals import read_rentals
from simcomm.scaling.descriptions import ScalingGpu, find_node, find_scaling_gpu
from simcomm.scaling.gpu_rates import predict_rate
from simcomm.scaling.models import even_model, find_model

FOUR_4090 = "https://cortwave.github.io/posts/multi-gpu (Why 4 GPUs Can Be Slower Than 1 on Budget Clouds, 2026-01-09)"
PARAMETERS_4090 = 1_700_000_000
LAMBDA = "https://github.com/lambdal/deeplearning-benchmark/blob/aa5addb6/pytorch/pytorch-train-throughput-fp16.csv"
TXL = "NVIDIA's DeepLearningExamples, PyTorch/LanguageModeling/Transformer-XL (V100, FP32)"
TWO_4070 = "https://ahjavid.github.io/technical-notes-blog/posts/multi-gpu-training-analysis"


class Told(NamedTuple):
    """A rate in a story: on so many GPUs, as published and as predicted; None where none is published."""

    what: str
    gpus: int
    published: float | None
    predicted: StepPrediction


class Story(NamedTuple):
    """Published rates of a training, the cause of what is surprising in them, and what had to be assumed."""

    title: str
    source: str
    cause: str
    assumed: str
    unit: str
    told: tuple[Told, ...]


def stories() -> list[Story]:
    """Return all stories.

    >>> [story.title.partition(":")[0] for story in stories()]
    ['Four 4090s', 'PCIe or SXM', 'Two 4070 Ti SUPER', 'One NVLink for two']
    """
    return [_four_4090(), _pcie_or_sxm(), _two_4070(), _one_nvlink()]


def _scaled(job: TrainingJob, gpu: ScalingGpu, node: ScalingNode, alone: float) -> Callable[[int], StepPrediction]:
    return lambda gpus: predict_rate(job, node, gpus, 1, alone, gpu=gpu)


def _four_4090() -> Story:
    alone = 15.4
    job = TrainingJob(
        even_model("1.7 billion parameters", PARAMETERS_4090),
        1.0,
        Parallelism(gradient_bytes=2),
        "bf16",
        loader="synthetic",
    )

    def told(gpus: int, published: float | None, samples: int = 1) -> Told:
        node = find_node("workstation")._replace(gpus=4)
        on = _scaled(replace(job, batch=float(samples)), find_scaling_gpu("RTX 4090"), node, alone)
        return Told("" if samples == 1 else f"one exchange for {samples} samples", gpus, published, on(gpus))

    return Story(
        "Four 4090s: slower than one",
        FOUR_4090,
        "GeForce boards reach each other through host memory only: every step exchanges 3.4 GB, whatever it computes",
        "gradients of 2 bytes; batches of one sample, with which the seconds that the source's profile shows for the "
        "exchange between two GPUs (0.4) are those that are missing from its rates (2 / 4.5 - 1 / 15.4)",
        "samples/s",
        (told(1, 15.4), told(2, 4.5), told(4, 14.0), told(4, None, 3), told(4, None, 4)),
    )


def bandwidth_sent(gpus: int, rate: float, alone: float, nbytes: float) -> float:
    """Return the bytes/s at which each GPU must have sent in a ring, if each step takes each one sample.

    Four 4090s at 14.0 samples/s, of which one does 15.4, with 3.4 GB of gradients:

    >>> round(bandwidth_sent(4, 14.0, 15.4, 3.4e9) / 1e9), round(bandwidth_sent(2, 4.5, 15.4, 3.4e9) / 1e9)
    (23, 9)
    """
    return 2 * (gpus - 1) / gpus * nbytes / (gpus / rate - 1 / alone)


def _pcie_or_sxm() -> Story:
    job = TrainingJob(find_model("BERT-large-384"), 112.0, precision="fp16", loader="synthetic")
    kinds = (("H100 PCIe", "h100-pcie5", 203.0, 1522.0), ("H100 SXM", "h100-sxm", 301.0, 2167.0))
    return Story(
        "PCIe or SXM: the dearer hour is the cheaper run",
        LAMBDA,
        "One SXM board does half as much again and exchanges faster; its hour costs a quarter more (Hyperstack)",
        "",
        "sequences/s",
        tuple(
            Told(gpu, 8, published, _scaled(job, find_scaling_gpu(gpu), find_node(node), alone)(8))
            for gpu, node, alone, published in kinds
        ),
    )


def dollars_a_million(gpu: str, rate: float) -> float:
    """Return what a million samples cost on eight GPUs of a type, by Hyperstack's prices without NVLink bridges.

    >>> dollars_a_million("H100 PCIe", 1522.0) > dollars_a_million("H100 SXM", 2167.0)
    True
    """
    offers = [one for one in read_rentals() if one.provider == "Hyperstack" and (one.gpu, one.gpus) == (gpu, 8)]
    price = min(one.price for one in offers if one.price is not None)
    return price / rate / 3600 * 1e6


def _two_4070() -> Story:
    gpu, alone = find_scaling_gpu("RTX 4070 Ti SUPER"), 800.0

    def told() -> Iterator[Told]:
        for batch in (16, 24, 32, 64):
            job = TrainingJob(
                find_model("ResNet-50"), float(batch), Parallelism(overlap=False), "mixed", loader="synthetic"
            )
            found = predict_rate(job, find_node("workstation"), 2, 1, alone, gpu=gpu)
            yield Told(f"batch {batch}", 2, None, found)

    return Story(
        "Two 4070 Ti SUPER: 1.18 times as fast as one",
        TWO_4070,
        "Host memory again: 102 MB of gradients take as long as computing a dozen images or two",
        "800 images/s on one and an exchange after backward. Published are 4.5 h on one and 3.8 h on two, "
        "1.18 times as fast, and neither the batch nor the rate: shown by batch",
        "images/s",
        tuple(told()),
    )


def _one_nvlink() -> Story:
    job = TrainingJob(find_model("TXL-base"), 3072.0, precision="FP32", loader="text")
    on = _scaled(job, find_scaling_gpu("V100"), find_node("dgx-1-v100"), 13981.0)
    return Story(
        "One NVLink for two: a DGX-1 does better with four",
        TXL,
        "Its GPUs 0 and 1 share one NVLink (22 GB/s); rings over four have three times the bandwidth",
        "",
        "tokens/s",
        tuple(Told("", gpus, rate, on(gpus)) for gpus, rate in ((2, 23163.0), (4, 48893.0), (8, 97005.0))),
    )
