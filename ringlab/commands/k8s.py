"""The command ``ringlab k8s``."""

import json
from typing import Annotated

import typer

from ringlab.terminal.job_options import (
    CheckpointsOpt,
    JobOutputOpt,
    LogDirOpt,
    NodesOpt,
    PerNodeOpt,
    RestartsOpt,
    TimeLimitOpt,
)
from ringlab.terminal.options import BackendOpt, ScenarioArg, SetOpt

TextOpt = str | None


def k8s(
    scenario: ScenarioArg,
    image: Annotated[str, typer.Option("--image", metavar="NAME", help="An image that has Ringlab.")],
    output: JobOutputOpt = None,
    set_keys: SetOpt = None,
    nodes: NodesOpt = None,
    per_node: PerNodeOpt = None,
    backend: BackendOpt = "nccl",
    time_limit: TimeLimitOpt = "24:00:00",
    checkpoints: CheckpointsOpt = None,
    log_dir: LogDirOpt = None,
    max_restarts: RestartsOpt = 3,
    name: Annotated[TextOpt, typer.Option(metavar="NAME", help="The Job's name.")] = None,
    namespace: Annotated[TextOpt, typer.Option("-n", "--namespace", metavar="NAME", help="Its namespace.")] = None,
    claim: Annotated[
        TextOpt, typer.Option(metavar="NAME", help="The PersistentVolumeClaim in which checkpoints and logs stay.")
    ] = None,
    cpus: Annotated[TextOpt, typer.Option(metavar="N", help="Cores of a pod, for all its ranks.")] = None,
    memory: Annotated[TextOpt, typer.Option(metavar="SIZE", help="Memory of a pod, such as 64Gi.")] = None,
    port: Annotated[int, typer.Option(metavar="N", help="Where the first pod listens.")] = 29500,
    python: Annotated[str, typer.Option(metavar="FILE", help="The image's Python that has Ringlab.")] = "python",
    service_account: Annotated[TextOpt, typer.Option(metavar="NAME", help="The pods' service account.")] = None,
    pull_secret: Annotated[TextOpt, typer.Option(metavar="NAME", help="The Secret that fetches the image.")] = None,
    node_selector: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="A label that the nodes have.")
    ] = None,
    label: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="A label for the Job and its pods.")
    ] = None,
    env: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="An environment variable of the ranks.")
    ] = None,
) -> None:
    """Write a Job of Kubernetes that runs the scenario under torchrun; `kubectl apply -f FILE` starts it."""
    from ringlab.jobs.kubernetes import KubernetesOptions, make_manifest
    from ringlab.terminal.job_options import load_job, write_job

    job = load_job(scenario, set_keys, nodes, per_node, backend, checkpoints, log_dir, max_restarts, output)
    options = KubernetesOptions(
        image,
        name,
        namespace,
        time_limit,
        claim,
        cpus,
        memory,
        port,
        python,
        service_account,
        pull_secret,
        node_selector or (),
        label or (),
        env or (),
    )
    write_job(json.dumps(make_manifest(job, options), indent=2, ensure_ascii=False) + "\n", output, "kubectl apply -f")
