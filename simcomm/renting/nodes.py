"""A rental as a node of the step model: what joins its GPUs, as in the nodes of the published series.

Those have the bus bandwidth that published nccl-tests show. A machine without peer-to-peer access exchanges
through host memory; NVLink bridges join two cards, so more of them exchange over PCIe.
"""

from collectives.errors import InputError
from simcomm.cluster.hardware_parts import find_link, find_part
from simcomm.mesh.interconnect import ScalingNode
from simcomm.renting.rentals import Rental
from simcomm.scaling.descriptions import ScalingGpu, find_node, find_scaling_gpu
from simcomm.scaling.gpu_rates import series_gpu

ALIKE = {
    ("NVSwitch", "volta"): "dgx-2",
    ("NVSwitch", "ampere"): "dgx-a100",
    ("NVSwitch", "hopper"): "h100-sxm",
    ("NVLink mesh", "pascal"): "dgx-1-p100",
    ("NVLink mesh", "volta"): "dgx-1-v100",
}
OVER_PCIE = {"3.0": "k80", "4.0": "ada-pcie", "5.0": "h100-pcie5"}
OVER_MEMORY = "workstation"
USUAL_CORES = 8  # of a GPU, where the number of cores is not known
HOPPER_LINKS = "NVLink 4 x18"
UNKNOWN_NIC = 1.25  # GB/s: of a machine that is not joined to others


def find_gpu(rental: Rental) -> ScalingGpu:
    """Return the GPU of a rental by its data sheet. Raise InputError for one of which too little is known."""
    return find_scaling_gpu(series_gpu(rental.gpu))


def node_alike(rental: Rental) -> str:
    """Return the node of the published series whose GPUs are joined in the same way. Raise InputError.

    >>> from simcomm.renting.rentals import read_rentals
    >>> sorted({node_alike(one) for one in read_rentals() if one.gpu == "RTX 4090" and one.gpus > 1})
    ['workstation']
    """
    gpu = find_part("GPU", rental.gpu)
    if rental.interconnect.startswith("NV") and rental.interconnect != "NVLink pairs":
        generation = gpu["generation"].value
        if rental.interconnect == "NVSwitch" and (rental.interconnect, generation) not in ALIKE:
            generation = "hopper"
        if (rental.interconnect, generation) not in ALIKE:
            raise InputError(f"{rental.name}: nothing is known of a {rental.interconnect} of {rental.gpu}")
        return ALIKE[rental.interconnect, generation]
    lanes = gpu["pcie"].value.removeprefix("PCIe ").partition(" ")[0] if "pcie" in gpu else ""
    return OVER_PCIE.get(lanes, OVER_PCIE["4.0"]) if rental.peer_to_peer else OVER_MEMORY


def scaling_node(rental: Rental) -> ScalingNode:
    """Return the node of the step model that a rental is.

    An NVSwitch of a generation without a published series is as that of the H100, in the ratio of their NVLinks.
    """
    alike = find_node(node_alike(rental))
    ratio = 1.0
    if rental.interconnect == "NVSwitch" and alike.name == ALIKE["NVSwitch", "hopper"]:
        ratio = find_link(find_part("GPU", rental.gpu)["nvlink"].value).bandwidth / find_link(HOPPER_LINKS).bandwidth
    nic = UNKNOWN_NIC if rental.nic_bandwidth is None else rental.nic_bandwidth / 1e9
    cores = round(rental.cores) if rental.cores is not None else USUAL_CORES * rental.gpus
    rates = {count: ratio * rate for count, rate in alike.busbw.items()}
    return ScalingNode(rental.name, rental.gpus, alike.link, rates, cores, nic, rental.machine)
