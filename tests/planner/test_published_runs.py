"""Published runs as columns: computing and memory are those of the shipped fit."""

import numpy as np
import pytest

from planner.compute import Rates, unit_seconds
from planner.memory import host_bytes, memory_parts
from planner.mesh_search.columns import to_columns
from planner.mesh_search.compute import Rates as MeshRates
from planner.mesh_search.compute import layer_seconds
from planner.mesh_search.memory import host_bytes as mesh_host_bytes
from planner.mesh_search.memory import memory_bytes
from planner.mesh_search.parameters import read_shipped
from planner.mesh_search.runs import read_table
from planner.parameters import PRIORS
from planner.runs import columns_of_runs

RUNS = read_table()[0]


def test_computing_of_published_runs_equals_the_closed_forms() -> None:
    parameters = {**{name: prior.value for name, prior in PRIORS.items()}, **read_shipped().parameters}
    columns, meshes = columns_of_runs(RUNS), to_columns(RUNS)
    found = unit_seconds(columns, parameters, Rates(columns, parameters))
    expected = layer_seconds(meshes, parameters, MeshRates(meshes, parameters))
    for one, other in ((found.forward[:, 0], expected.forward), (found.backward[:, 0], expected.backward)):
        np.testing.assert_allclose(one, other, rtol=1e-12)
    np.testing.assert_allclose(found.head, expected.head, rtol=1e-12)


def test_memory_of_published_runs_equals_the_closed_forms() -> None:
    columns, meshes, memory = columns_of_runs(RUNS), to_columns(RUNS), read_shipped().memory
    assert memory_parts(columns, memory)["total"] == pytest.approx(memory_bytes(meshes, memory).total)
    assert host_bytes(columns) == pytest.approx(mesh_host_bytes(meshes))
