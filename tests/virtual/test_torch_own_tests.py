"""Torch's own tests of process groups, each as a program on three virtual ranks."""

import json
from collections.abc import Iterator

import pytest
from torch_own_tests import KNOWN, run_virtually, torch_host

from virtual.hosting.host import VirtualHost

FOUND = json.loads(KNOWN.read_text())
PASSED, FAILED = FOUND["passed on gloo"], FOUND["fail on virtual ranks"]


@pytest.fixture(scope="module")
def host() -> Iterator[VirtualHost]:
    pytest.importorskip("expecttest", reason="torch's own tests import it")
    with torch_host() as host:
        yield host


def test_known_failures_of_torch_tests_are_few_and_have_reasons() -> None:
    assert len(PASSED) >= 90 and FAILED.keys() <= {*PASSED}
    assert all(FAILED.values()), "each known failure needs a reason"
    assert len(FAILED) <= 0.1 * len(PASSED)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in PASSED if name not in FAILED])
def test_torch_test_passes_on_virtual_ranks(host: VirtualHost, name: str) -> None:
    assert run_virtually(host, name) == "passed"


@pytest.mark.slow
@pytest.mark.parametrize("name", FAILED)
def test_torch_test_in_the_list_of_known_failures_fails(host: VirtualHost, name: str) -> None:
    assert run_virtually(host, name) != "passed", "remove it from the list"
