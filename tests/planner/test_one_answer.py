"""The same question by predict, search and plan has the same rate, memory, fit and dollars."""

from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

from collectives.errors import InputError
from planner.memory import FILL
from planner.prediction import StepPrediction, TooLittleMemory
from planner.renting.candidates import Candidate, CandidateSteps, estimate_cost, find_host
from planner.renting.prices import InstanceType, read_prices
from ringlab.commands.predicting.predict_devices import predict_devices
from ringlab.commands.predicting.search import SearchOptions, find_meshes
from ringlab.shared.models import find_job, named_optimizer
from scenarios.loader import read_spread_training
from simcomm.nccl.clusters import NcclCluster

BATCHES = {"gpt2-large": 4, "llama3-8b": 1, "llama2-13b": 2, "gpt2-xl": 8}
MACHINES = {"p4d.24xlarge": 2, "p5.48xlarge": 4, "p5en.48xlarge": 1}
STRATEGIES = ('{strategy = "zero1"}', '{strategy = "fsdp"}', '{strategy = "zero1", tensor = 2, sequence = true}')
EXPERTS = '{strategy = "zero1", experts = 8, expert = 4, top_k = 2}'
JOBS = [*product(("gpt2-large", "llama3-8b", "llama2-13b"), MACHINES, STRATEGIES)]
JOBS += [("gpt2-large", "p5en.48xlarge", EXPERTS)]
ALMOST_FULL = ("gpt2-xl", "p4d.24xlarge", STRATEGIES[0])
SAMPLES = 1e6


def instance_of(machine: str) -> InstanceType:
    return next(instance for instance in read_prices() if instance.machine == machine and instance.price is not None)


@pytest.fixture
def scenario(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    model, machine, strategy = request.param
    price = instance_of(machine).price / instance_of(machine).gpus
    path = tmp_path / "job.toml"
    path.write_text(
        f'[cluster]\npreset = "{machine}"\nnodes = {MACHINES[machine]}\ntransport = "nccl"\n'
        f'[training]\nmodel = "{model}"\nbatch_size = {BATCHES[model]}\nprecision = "bf16"\noptimizer = "adamw"\n'
        f"price_per_hour = {price}\nsamples_per_epoch = {SAMPLES:.0f}\nparallelism = {strategy}\n"
    )
    return path


@pytest.mark.parametrize("scenario", JOBS, indirect=True, ids=[" ".join(job) for job in JOBS])
def test_predict_search_and_plan_give_equal_answers(scenario: Path) -> None:
    spread = read_spread_training(scenario)
    job = find_job(spread.training, spread.folder)
    job = replace(job, optimizer=named_optimizer(spread.training))
    assert isinstance(spread.cluster, NcclCluster)
    machine = str(spread.cluster.system.preset)
    instance, nodes, gpus = instance_of(machine), MACHINES[machine], spread.cluster.world_size
    on_all = job.on(gpus, instance.gpus)
    options = SearchOptions(mesh=on_all.mesh.name, batch=on_all.global_batch)
    try:
        predicted = predict_devices(scenario, [gpus]).cases[0].rows[0]
    except InputError as error:
        assert "does not fit" in str(error)
        with pytest.raises(InputError, match="does not fit"):
            find_meshes(scenario, options)
        assert isinstance(CandidateSteps(job).predict([(instance, nodes)])[0], TooLittleMemory)
        return
    searched = find_meshes(scenario, options).cases[0].best[0]
    (planned,) = CandidateSteps(job).predict([(instance, nodes)])
    assert isinstance(planned, StepPrediction)
    cost = estimate_cost(Candidate(instance, nodes, "on demand"), planned, SAMPLES)
    tokens = predicted.tokens_per_s / predicted.samples_per_s
    assert searched["tokens_per_s"] / tokens == pytest.approx(predicted.samples_per_s)
    assert searched["mfu"] == pytest.approx(predicted.mfu)
    assert planned.rate == pytest.approx(predicted.samples_per_s)
    assert planned.interval() == pytest.approx(predicted.interval)
    assert searched["memory_bytes"] == pytest.approx(predicted.memory["total"])
    assert planned.memory["total"] == pytest.approx(predicted.memory["total"])
    assert searched["chance_to_run"] == planned.chance_to_run == predicted.chance_to_run
    assert cost.dollars == pytest.approx(predicted.epoch.dollars)
    assert searched["dollars_per_billion_tokens"] * SAMPLES * tokens / 1e9 == pytest.approx(predicted.epoch.dollars)


@pytest.mark.parametrize("scenario", [ALMOST_FULL], indirect=True, ids=[" ".join(ALMOST_FULL)])
def test_predict_search_and_plan_share_a_memory_limit(scenario: Path) -> None:
    spread = read_spread_training(scenario)
    job = replace(find_job(spread.training, spread.folder), optimizer="adamw")
    instance, gpus = instance_of("p4d.24xlarge"), spread.cluster.world_size
    on_all, host = job.on(gpus, instance.gpus), find_host(instance)
    options = SearchOptions(mesh=on_all.mesh.name, batch=on_all.global_batch)
    (row,) = find_meshes(scenario, replace(options, fill=1.0)).cases[0].best
    assert FILL < row["memory_bytes"] / host.device.memory_bytes < 1
    message = rf'only {FILL:.0%} of .* can be used .* --fill 1 --mesh "{options.mesh}"` predicts it'
    with pytest.raises(InputError, match=message):
        predict_devices(scenario, [gpus])
    with pytest.raises(InputError, match="does not fit"):
        find_meshes(scenario, options)
    (error,) = CandidateSteps(job).predict([(instance, MACHINES["p4d.24xlarge"])])
    assert isinstance(error, TooLittleMemory)
    assert error.needed == pytest.approx(row["memory_bytes"] / FILL)
    assert error.available == host.device.memory_bytes
