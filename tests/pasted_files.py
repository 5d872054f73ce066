"""Write files as engineers paste them, in the formats that public documentation describes."""

from collections.abc import Sequence
from pathlib import Path

SLOT = 'link_speed="32.0 GT/s PCIe" link_width="16"'


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def topo_matrix(cells: Sequence[Sequence[str]], names: Sequence[str]) -> str:
    head = "\t".join(["", *names, "CPU Affinity", "NUMA Affinity"])
    rows = ["\t".join([name, *row, "0-63", "0"]) for name, row in zip(names, cells, strict=True)]
    return "\n".join([head, *rows, "", "Legend:", "", "  X    = Self", ""])


def dgx_matrix() -> str:
    """Return the matrix of a DGX H100: NV18 between all GPUs, each with a NIC on its PCIe switch."""
    names = [*(f"GPU{gpu}" for gpu in range(8)), *(f"NIC{nic}" for nic in range(8))]
    cells = []
    for a in range(16):
        row = []
        for b in range(16):
            same_socket = (a % 8) // 4 == (b % 8) // 4
            near = "PXB" if a % 8 == b % 8 else "NODE" if same_socket else "SYS"
            row.append("X" if a == b else "NV18" if a < 8 and b < 8 else near)
        cells.append(row)
    return topo_matrix(cells, names)


def dgx_xml() -> str:
    """Return NCCL's topology of a DGX H100: two sockets, a PCIe switch with GPU and NIC eight times, NVSwitches."""
    lines = ['<system version="1">']
    for socket in range(2):
        lines.append(
            f'  <cpu numaid="{socket}" affinity="ff" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="143">'
        )
        for local in range(4):
            number = 4 * socket + local
            bus = f"0000:{0x10 + 0x10 * number:02x}:00.0"
            lines += [
                f'    <pci busid="0000:{0x0F + 0x10 * number:02x}:00.0" class="0x060400" {SLOT}>',
                f'      <pci busid="{bus}" class="0x030200" {SLOT}>',
                f'        <gpu dev="{number}" sm="90" rank="{number}" gdr="1">',
                '          <nvlink target="fffffff:ffff:ff" count="18" tclass="0x068000"/>',
                "        </gpu>",
                "      </pci>",
                f'      <pci busid="0000:{0x11 + 0x10 * number:02x}:00.0" class="0x020700" {SLOT}>',
                f'        <nic><net name="mlx5_{number}" dev="{number}" speed="400000" port="1" gdr="1"/></nic>',
                "      </pci>",
                "    </pci>",
            ]
        lines.append("  </cpu>")
    return "\n".join([*lines, "</system>", ""])


def gpus_listed(name: str, count: int) -> str:
    return "".join(f"GPU {gpu}: {name} (UUID: GPU-{gpu:08x})\n" for gpu in range(count))


def workstation_matrix() -> str:
    cells = [["X" if a == b else "PHB" for b in range(4)] for a in range(4)]
    return topo_matrix(cells, [f"GPU{gpu}" for gpu in range(4)])


NCCL_LOG = """\
n0:10:20 [0] NCCL INFO Bootstrap : Using eth0:10.0.0.1<0>
NCCL version 2.21.5+cuda12.4
n0:10:20 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]; OOB eth0:10.0.0.1<0>
n0:10:20 [0] NCCL INFO Using network IB
n0:10:20 [0] NCCL INFO comm 0x55aa rank 0 nRanks 16 nNodes 2 localRanks 8 localRank 0 MNNVL 0
n0:10:20 [0] NCCL INFO Channel 00/04 :    0   1   2   3
n0:10:20 [0] NCCL INFO Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/0{gdr}
n1:11:21 [0] NCCL INFO Channel 00/0 : 0[0] -> 8[0] [receive] via NET/IB/0/GDRDMA
n0:10:20 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM
n0:10:20 [0] NCCL INFO 4 coll channels, 16 nvls channels, 8 p2p channels, 2 p2p channels per peer
n0:10:20 [0] NCCL INFO Connected all rings
"""
