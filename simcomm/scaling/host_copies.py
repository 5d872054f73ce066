"""Batches that are copied to the GPUs of a node over its PCIe links, alone and beside the exchange of gradients.

What shares those links is known of machines of the hardware catalogue; of a node that names none nothing is added.
"""

from functools import lru_cache
from math import inf
from typing import NamedTuple

from collectives.records.model_profile import ModelProfile
from simcomm.nccl.descriptions import describe_preset
from simcomm.nccl.host_links import HostLinks, SharedLink, TrafficFlows
from simcomm.nccl.settings import NcclSettings
from simcomm.scaling.descriptions import ScalingNode

# Bytes of a JPEG file of ImageNet: ILSVRC2012_img_train.tar has 147,897,477,120 bytes of 1,281,167 images. DALI copies
# files to the GPU, which decodes them (``device="mixed"`` in NVIDIA's DeepLearningExamples); others copy pixels.
IMAGE_FILE = 115_440.0


class Copies(NamedTuple):
    """What copies of batches get: GB/s of each GPU, and the paces of the exchange and of the copies side by side."""

    rate: float = inf
    exchange_pace: float = 1.0
    pace: float = 1.0
    links: tuple[SharedLink, ...] = ()  # on which the two hold each other back


NO_COPIES = Copies()


def copied_bytes(model: ModelProfile, loader: str) -> float:
    """Return the bytes of a sample that are copied to a GPU; none of synthetic samples, which are there.

    >>> from simcomm.scaling.models import find_model
    >>> [copied_bytes(find_model("ResNet-50"), loader) for loader in ("synthetic", "dali", "decode")]
    [0.0, 115440.0, 602112.0]
    """
    if loader == "synthetic":
        return 0.0
    return IMAGE_FILE if loader == "dali" else float(model.input_bytes)


def find_copies(node: ScalingNode, gpus: int, *, several: bool) -> Copies:
    """Return what copies get on a node of which so many GPUs are used; ``several``: other nodes exchange too."""
    if node.machine is None:
        return NO_COPIES
    rate = node.bandwidth(gpus)
    return _find(node.machine, gpus, node.kind, min(rate, node.nic_GBps) if several else rate, several)


@lru_cache(maxsize=1024)
def _find(machine: str, gpus: int, kind: str, rate: float, several: bool) -> Copies:
    found = describe_preset(machine, 1, gpus)
    if kind != "nvlink":
        found = describe_preset(machine, 1, gpus, link="pcie", p2p=kind == "pcie")
    links = HostLinks(found, NcclSettings())
    copies = links.loading()
    exchange = links.rings("all_reduce", (tuple(range(gpus)),), ranks=gpus + several)._replace(most=rate)
    if gpus == 1 and not several:
        exchange = TrafficFlows("all_reduce", ())
    paces = links.paces([exchange, copies])
    return Copies(links.rate(copies), paces[0], paces[1], tuple(links.shared_between([exchange, copies])))
