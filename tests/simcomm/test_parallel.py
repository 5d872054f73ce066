"""Independent tasks run in this process, on all cores, or on the workers that joblib selects."""

import os
from contextlib import closing

import joblib
import psutil
import pytest

import simcomm
from simcomm import parallel
from simcomm.parallel import in_any_order

TASKS, RESULTS = range(-40, 0), {number: 40 - number for number in range(40)}


def use_two_cores_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("LOOK_AFTER_S", -1.0), ("WORTH_PROCESSES_S", -1.0), ("cores", lambda: 2)):
        monkeypatch.setattr(parallel, name, value)


def workers() -> list[psutil.Process]:
    """Return the child processes, except joblib's resource tracker."""
    children = psutil.Process().children(recursive=True)
    alive = [process for process in children if process.status() != psutil.STATUS_ZOMBIE]
    return [process for process in alive if "resource_tracker" not in " ".join(process.cmdline())]


def test_tasks_run_in_the_users_joblib_backend():
    with joblib.parallel_config("threading", n_jobs=2):
        assert dict(in_any_order(abs, TASKS)) == RESULTS


def test_tasks_run_on_dask():
    distributed = pytest.importorskip("distributed", reason="dask is not installed: pip install 'ringlab[dask]'")
    with (
        distributed.LocalCluster(2, threads_per_worker=1, processes=False, dashboard_address=None) as dask,
        distributed.Client(dask) as client,
        joblib.parallel_config("dask", client=client),
    ):
        assert dict(in_any_order(abs, TASKS)) == RESULTS


def test_long_tasks_run_on_two_cores_and_leave_no_process(monkeypatch: pytest.MonkeyPatch):
    before = workers()
    use_two_cores_at_once(monkeypatch)
    assert dict(in_any_order(abs, TASKS)) == RESULTS
    with closing(in_any_order(abs, TASKS)) as early:
        assert next(early)  # closing drops the other tasks
    assert workers() == before


def test_other_processes_run_tasks_that_take_long(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(parallel, "cores", lambda: 2)
    results = dict(in_any_order(eval, ["__import__('os').getpid()"] * 3, takes_long=True))
    assert len(results) == 3 and os.getpid() not in results.values()


def test_tasks_of_a_local_function_stay_in_this_process(monkeypatch: pytest.MonkeyPatch):
    use_two_cores_at_once(monkeypatch)
    monkeypatch.setattr(parallel, "Parallel", None)
    assert dict(in_any_order(lambda task: -task, TASKS)) == RESULTS


def test_removed_function_names_its_replacement():
    with pytest.raises(AttributeError, match=r"simcomm.sweep was removed; call simcomm.run\(.*\) in a loop"):
        getattr(simcomm, "sweep")  # noqa: B009
