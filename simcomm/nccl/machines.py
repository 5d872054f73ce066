"""What a machine of the hardware catalogue says in the words of a description."""

from typing import Any

from collectives.errors import InputError
from simcomm.cluster.hardware_parts import find_part
from simcomm.cluster.presets import find_machine, machine_entries

LINKS = {"switch": "nvswitch", "pairs": "bridge", "cube-mesh": "mesh"}
CPUS = {"Infinity Fabric": "amd", "UPI": "intel", "QPI": "intel"}  # by the link between two of them


def catalogue_keys(where: str, preset: str) -> dict[str, Any]:
    """Return the keys that follow from a machine of the catalogue: gpu, link, pcie, NICs, PCIe switches, cpu, domain.

    Of several boards each is a host: a GB200 NVL72 has 18 with four GPUs each, in one NVLink domain. Raises
    InputError for a machine that the catalogue does not have.

    >>> catalogue_keys("", "dgx-h100")
    {'gpu': 'H100 SXM', 'link': 'nvswitch', 'pcie': 5, 'nic': 400.0, 'cpu': 'intel'}
    """
    try:
        machine = find_machine(preset)
    except InputError as error:
        raise InputError(f"{where}: {error}") from error
    entry = machine_entries()[preset]
    gpu = find_part("GPU", entry["gpu"])
    keys: dict[str, Any] = {"gpu": entry["gpu"], "link": LINKS.get(entry.get("nvlink", ""), "pcie")}
    slots = [entry.get("gpu_pcie", gpu["pcie"].value), entry.get("uplink", "")]
    generations = [int(slot[5]) for slot in slots if slot.startswith("PCIe ")]
    if generations:
        keys["pcie"] = min(generations)
    if machine.nics and machine.nic:
        keys["nic"] = machine.nic.bandwidth * machine.nics / machine.boards / 1e9
    if machine.pcie_switches and keys["link"] == "pcie":
        keys["layout"] = "switch" if machine.pcie_switches == 1 else "switches"
    for link, cpu in CPUS.items():
        if entry.get("socket_link", "").startswith(link):
            keys["cpu"] = cpu
    if machine.boards > 1:
        keys["domain"] = entry["gpus"]
    return keys


def gpus_of_host(preset: str) -> int:
    """Return the GPUs of a host of a machine of the hardware catalogue, of which a system may use some.

    >>> gpus_of_host("dgx-h100"), gpus_of_host("gb200-nvl72")
    (8, 4)
    """
    entry = machine_entries()[preset]
    return int(entry["gpus"]) // int(entry.get("boards", 1))


def hosts_of_machine(preset: str, nodes: int, gpus: int) -> dict[str, int]:
    """Return hosts, GPUs of each and, of a machine of several boards, the GPUs that NVLink joins. Raise InputError.

    >>> hosts_of_machine("gb200-nvl72", 2, 72)
    {'nodes': 36, 'gpus': 4, 'domain': 72}
    """
    entry = machine_entries().get(preset, {})
    boards = entry.get("boards", 1)
    if boards == 1:
        return {"nodes": nodes, "gpus": gpus}
    each = entry["gpus"] // boards
    if gpus > each and gpus % each:
        raise InputError(
            f"{preset}: {gpus} GPUs of each; give up to {each}, or a multiple of {each}: a board has so many"
        )
    used = min(gpus, each)
    return {"nodes": nodes * gpus // used, "gpus": used, "domain": gpus}
