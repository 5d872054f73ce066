"""Why meshes lose: a line a kind of mesh, of what its best one takes longer, or keeps too much of."""

from collections.abc import Iterator

from simcomm.mesh_search.memory import PART_NAMES
from simcomm.mesh_search.search import FoundMeshes, SearchedMesh

SAID = 2  # parts of a step, or of memory, in a line
LEAST = 0.005  # of a step, that is said
AXES = (("tp", "tensor"), ("pp", "pipeline"), ("cp", "context"), ("ep", "experts"))


def name_family(mesh: SearchedMesh) -> str:
    """Return the kind of a mesh: what its data axis divides, and the other axes that it has.

    >>> name_family(SearchedMesh(tp=8, pp=2, dp=4, sharding="zero1"))
    'zero1, tensor, pipeline'
    """
    return ", ".join([mesh.sharding, *(word for axis, word in AXES if getattr(mesh, axis) > 1)])


def why_others_lose(found: FoundMeshes) -> Iterator[tuple[str, str]]:
    """Yield for each kind of mesh but the fastest one's its best mesh and what is wrong with it, the nearest first."""
    if not len(found.order):
        return
    best = int(found.order[0])
    seen = {name_family(found.searched[best])}
    for number in map(int, found.order):
        name = name_family(found.searched[number])
        if name not in seen:
            seen.add(name)
            yield name, f"{found.searched[number].name}: {why_slower(found, number, best)}"
    total, least = found.memory.total, dict[str, int]()
    for number, mesh in enumerate(found.searched):
        name = name_family(mesh)
        if name not in seen and (name not in least or total[number] < total[least[name]]):
            least[name] = number
    for name, number in least.items():
        yield name, f"{found.searched[number].name}: {why_too_large(found, number)}"


def least_memory(found: FoundMeshes) -> int:
    """Return the number of the mesh that keeps least."""
    return int(found.memory.total.argmin())


def why_slower(found: FoundMeshes, number: int, than: int) -> str:
    """Say by how much one mesh is slower than another, and which parts of a step make it so."""
    mine, best = found.parts.take(number), found.parts.take(than)
    whole = best["total"]
    more = {name: (mine[name] - best[name]) / whole for name in mine if name != "total"}
    names = sorted((name for name in more if more[name] > LEAST), key=lambda name: -more[name])[:SAID]
    slower = mine["total"] / whole - 1
    if slower <= 0 or not names:
        return "as fast"
    return f"{slower:.0%} longer, " + ", ".join(f"{name} {more[name]:+.0%}" for name in names)


def why_too_large(found: FoundMeshes, number: int) -> str:
    """Say how much a mesh keeps, and of what most."""
    kept = {name: float(getattr(found.memory, name)[number]) for name in PART_NAMES}
    names = sorted(kept, key=lambda name: -kept[name])[:SAID]
    most = ", ".join(f"{name} {kept[name] / 2**30:.0f}" for name in names)
    total, limit = found.memory.total[number], found.meshes.memory_bytes[number]
    return f"keeps {total / 2**30:.0f} GiB of {limit / 2**30:.0f}: {most}"
