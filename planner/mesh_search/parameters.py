"""Parameters of the step: a prior each, what published runs make of it, and what is believed of a cluster.

The logarithm of a step is taken as linear in those of the parameters (``Slopes``). A cluster that no fit has seen
differs from those that were seen in each parameter by ``shared`` of its prior's deviation, and each run by ``noise``
of its own; both are found by leaving sources out (``benchmarks/studies/mesh_fit.py``).
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np

from planner.mesh_search.columns import Array, Meshes
from planner.mesh_search.step import step_seconds


class Prior(NamedTuple):
    """A median and the standard deviation of its logarithm."""

    value: float
    spread: float


PRIORS: dict[str, Prior] = {
    # shares of the data sheet that matrix products of the best shape reach
    "gemm_ampere": Prior(0.80, 0.1),
    "gemm_hopper": Prior(0.70, 0.1),
    "gemm_blackwell": Prior(0.70, 0.1),
    "power_500w": Prior(0.85, 0.1),
    "gemm_other": Prior(0.75, 0.15),
    "precision_fp8": Prior(0.75, 0.15),  # of that share
    "precision_mxfp8": Prior(0.75, 0.15),
    "precision_nvfp4": Prior(0.7, 0.2),
    "wave": Prior(0.5, 0.5),  # exponent of the share of multiprocessors that the last wave of tiles leaves busy
    "inner": Prior(150, 0.5),  # columns of the inner dimension that a tile's start and end cost
    "align": Prior(0.10, 0.5),  # exponent of what odd dimensions lose
    # attention: shares of the data sheet
    "flash_ampere": Prior(0.55, 0.2),
    "flash_hopper": Prior(0.33, 0.2),
    "flash_blackwell": Prior(0.40, 0.2),
    "flash_other": Prior(0.40, 0.25),
    "flash_triton": Prior(0.65, 0.2),  # kernels of 2023
    "flash_cudnn": Prior(1.5, 0.2),
    "unfused": Prior(0.35, 0.3),
    "score_bytes": Prior(12, 0.4),
    # operations that memory limits: bytes an element and token, forward
    "bytes_hidden": Prior(22, 0.3),
    "bytes_ffn": Prior(7, 0.3),
    "bytes_expert": Prior(14, 0.4),
    "fused": Prior(0.5, 0.3),  # what a compiler leaves of them
    # the host: milliseconds a layer, forward and back
    "host_ms": Prior(1.2, 0.4),
    "host_tensor": Prior(0.5, 0.6),
    "host_expert_ms": Prior(6, 0.4),
    "graph": Prior(0.3, 0.5),
    "selective": Prior(0.35, 0.4),  # of products and bytes, computed again
    # collectives
    "nvlink": Prior(0.75, 0.15),
    "net": Prior(0.70, 0.2),
    "scale": Prior(0.03, 0.7),  # lost with each doubling of nodes
    "collective_us": Prior(20, 0.5),
    "hop_us": Prior(3, 0.6),
    "hop_efa_us": Prior(35, 0.6),
    "data_hop_us": Prior(30, 0.7),
    "data_hop_efa_us": Prior(150, 0.7),
    "bucket_mb": Prior(40, 0.5),
    "tensor_hidden": Prior(0.25, 0.5),
    "tensor_async": Prior(0.65, 0.3),
    "context_hidden": Prior(0.6, 0.4),
    "expert_hidden": Prior(0.35, 0.5),
    "p2p_exposed": Prior(0.7, 0.5),
    "data_hidden": Prior(0.6, 0.3),
    "gather_shown": Prior(0.6, 0.4),
    "fsdp_hidden": Prior(0.85, 0.15),
    # the rest of a step
    "optimizer_bytes": Prior(34, 0.3),
    "step_ms": Prior(20, 0.6),
    "jitter": Prior(0.006, 0.5),
    "head": Prior(1.0, 0.2),
    # one cluster's: pipelines over its network slow tensor groups inside of nodes
    "pipeline_tensor_ms": Prior(4.0, 0.5),
    # what no published run here tells: held by other sources, and as unsure as they are
    "zero_bubble": Prior(0.33, 0.4),  # of 1F1B's bubble, with the same memory (ZB-H1, https://arxiv.org/abs/2401.10241)
    "host_link": Prior(0.75, 0.2),  # of PCIe, copies from pinned memory
    "host_update": Prior(4.0, 0.5),  # 10^9 parameters a second that a node's processors update (ZeRO-Offload's table of
    # CPU-Adam: 1 billion in .22 s, 10 in 2.6, https://arxiv.org/abs/2101.06840)
    "unpack_bytes": Prior(6.0, 0.6),  # of memory, for a frozen weight of 8 or 4 bits: read, written, read as 16 bits
    # releases of mixtures of experts differ by up to 1.7 times on one job
    "experts": Prior(1.0, 0.25),
    # frameworks
    "framework_other": Prior(1.0, 0.08),
    "framework_nanotron": Prior(1.0, 0.08),
    "framework_torchtitan": Prior(1.0, 0.08),
    "framework_megatron-deepspeed": Prior(1.0, 0.08),
    "framework_megatron-bridge": Prior(1.0, 0.08),
    "framework_llm-foundry": Prior(1.0, 0.08),
    "framework_nemo": Prior(1.0, 0.08),
    "framework_megatron": Prior(1.0, 0.08),
}

FITTED = Path(__file__).parent / "data" / "parameters.json"


Z_80 = NormalDist().inv_cdf(0.9)  # deviations of a normal that hold 80 % between them
MOVED = 0.02  # of a prior's deviation, by which differences are taken
OUTLYING = 2.0  # deviations from which on a measured run counts less
ROUNDS = 4  # of adapting, each around what the one before found
NAMES = tuple(PRIORS)
normal_cdf = np.vectorize(NormalDist().cdf, otypes=[float])  # scipy's takes half a second to import


class Shipped(NamedTuple):
    """What is fitted to the published runs: parameters, deviations, memory, and the chance to fit."""

    parameters: dict[str, float]
    deviations: dict[str, float]  # shared: of each parameter, in its prior's; noise: of a run's logarithm
    memory: dict[str, float]
    chance: dict[str, float]


@cache
def read_shipped() -> Shipped:
    """Return what `benchmarks/studies/mesh_fit.py --write` has written."""
    found: dict[str, Any] = json.loads(FITTED.read_text(encoding="utf-8"))
    return Shipped(**found)


class Slopes(NamedTuple):
    """Logarithms of the seconds of steps, a row each, and what a prior's deviation of each parameter adds to them."""

    logs: Array
    slopes: Array  # rows x parameters, as in NAMES


def find_slopes(meshes: Meshes, parameters: Mapping[str, float]) -> Slopes:
    """Return steps with their derivatives, by differences: all in one array, once as they are and once a parameter."""
    count, whole = len(meshes), 1 + len(NAMES)
    moved: dict[str, Any] = {}
    for place, name in enumerate(NAMES, start=1):
        moved[name] = np.full(count * whole, parameters[name])
        moved[name][place * count : (place + 1) * count] *= np.exp(MOVED * PRIORS[name].spread)
    logs = np.log(step_seconds(meshes.take(np.tile(np.arange(count), whole)), moved).total).reshape(whole, count)
    return Slopes(logs[0], (logs[1:] - logs[0]).T / MOVED)


@dataclass(frozen=True)
class Belief:
    """Parameters of a cluster and framework, and the covariance of their logarithms in deviations of their priors."""

    parameters: Mapping[str, float]
    covariance: Array
    noise: float

    def deviations(self, slopes: Slopes) -> Array:
        """Return by how much the logarithm of each step may be off, as a standard deviation."""
        found = np.einsum("ik,kl,il->i", slopes.slopes, self.covariance, slopes.slopes)
        result: Array = np.sqrt(np.maximum(found, 0.0) + self.noise**2)
        return result

    def factors_of(self, slopes: Slopes) -> Array:
        """Return the factor by which each step may be longer or shorter, at 80 %."""
        factors: Array = np.exp(Z_80 * self.deviations(slopes))
        return factors

    def draw(self, slopes: Slopes, count: int) -> Array:
        """Return so many draws of the logarithms of steps, a column each: what they share moves together."""
        rng = np.random.default_rng(0)
        values, vectors = np.linalg.eigh(self.covariance)
        root = vectors * np.sqrt(np.maximum(values, 0.0))
        moves = slopes.slopes @ (root @ rng.standard_normal((len(NAMES), count)))
        result: Array = slopes.logs[:, None] + moves + self.noise * rng.standard_normal(moves.shape)
        return result

    def adapted(self, meshes: Meshes, measured: Array) -> "Belief":
        """Return what is believed after runs that took ``measured`` seconds; runs that are far off count less.

        This is the mode of the posterior, by Gauss and Newton, with the covariance there.
        """
        inverse, spreads = np.linalg.inv(self.covariance), np.array([PRIORS[name].spread for name in NAMES])
        start = np.log([self.parameters[name] for name in NAMES])
        x, parameters, covariance = np.zeros(len(NAMES)), dict(self.parameters), self.covariance
        for _ in range(ROUNDS):
            slopes = find_slopes(meshes, parameters)
            left = np.log(measured) - slopes.logs
            weights = 1 / np.sqrt(1 + (left / (OUTLYING * self.noise)) ** 2) / self.noise**2
            weighted = slopes.slopes * weights[:, None]
            covariance = np.linalg.inv(inverse + slopes.slopes.T @ weighted)
            x = covariance @ (weighted.T @ (left + slopes.slopes @ x))
            parameters = dict(zip(NAMES, np.exp(start + x * spreads).tolist(), strict=True))
        return replace(self, parameters=parameters, covariance=covariance)

    def after_runs(self, slopes: Array) -> "Belief":
        """Return how sure one is after runs of these slopes, whatever they take."""
        inverse = np.linalg.inv(self.covariance) + slopes.T @ slopes / self.noise**2
        return replace(self, covariance=np.linalg.inv(inverse))

    def choose_runs(self, slopes: Slopes, count: int) -> list[int]:
        """Return the runs of which the times would tell most of all others: what leaves the least variance in sum."""
        covariance, chosen = self.covariance, list[int]()
        for _ in range(min(count, len(slopes.logs))):
            moved = slopes.slopes @ covariance
            together = moved @ slopes.slopes.T
            own = np.diag(together) + self.noise**2
            gains = (together**2).sum(axis=0) / own
            gains[chosen] = -1.0
            best = int(np.argmax(gains))
            chosen.append(best)
            covariance = covariance - np.outer(moved[best], moved[best]) / own[best]
        return chosen


def believe(parameters: Mapping[str, float] | None = None) -> Belief:
    """Return what is believed of a cluster and framework of which no run is known; by the shipped parameters or others.

    >>> believe().noise < 0.15
    True
    """
    shipped = read_shipped()
    covariance = shipped.deviations["shared"] ** 2 * np.eye(len(NAMES))
    return Belief(parameters or shipped.parameters, covariance, shipped.deviations["noise"])


def chance_to_run(meshes: Meshes, total_bytes: Array) -> Array:
    """Return how likely a run does not fail: of the share of memory that is filled, a normal of its logarithm.

    Of runs with no more layers than stages most failed in any memory, and a few of all others.
    """
    chance = read_shipped().chance
    fits = normal_cdf((np.log(chance["fill"]) - np.log(total_bytes / meshes.memory_bytes)) / chance["spread"])
    starts = np.where(meshes.pp >= np.maximum(2, meshes.layers), 1 - chance["empty_stages"], 1.0)
    return np.asarray(chance["others"] * starts * fits)
