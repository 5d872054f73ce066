"""``ringlab k8s``: a job as a manifest of Kubernetes: an indexed Job, the Service by which its pods meet, the scenario.

Sources: the API reference of batch/v1 and v1, and https://kubernetes.io/docs/concepts/workloads/controllers/job/.
"""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

from typer import Option

from collectives.errors import InputError
from collectives.input_files import FileBytes, read_text
from collectives.quoting import quote
from ringlab.jobs.job import (
    FRESH_STORE,
    PORT,
    Job,
    JobOptions,
    OutputOpt,
    Text,
    TimeLimitOpt,
    check_port,
    load_job,
    parse_time_limit,
    start_of_node,
    write_job,
)
from ringlab.shared.options import ScenarioArg, with_groups
from scenarios import load, shipped

SCENARIO_FOLDER, WORK_FOLDER = "/etc/ringlab", "/data"

Object = dict[str, Any]

_DNS_LABEL = re.compile(r"[a-z](?:[a-z0-9-]*[a-z0-9])?", re.ASCII)  # RFC 1035: a Service's name begins with a letter
_DNS_NAME = re.compile(r"[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?", re.ASCII)  # RFC 1123 subdomain
_QUANTITY = re.compile(r"\d+(?:\.\d+)?(?:m|k|Ki|M|Mi|G|Gi|T|Ti)?", re.ASCII)
_LABEL_KEY = re.compile(r"(?:[a-z0-9][a-z0-9.-]*/)?[A-Za-z0-9](?:[\w.-]*[A-Za-z0-9])?", re.ASCII)
_LABEL_VALUE = re.compile(r"(?:[A-Za-z0-9](?:[\w.-]*[A-Za-z0-9])?)?", re.ASCII)
_VARIABLE = re.compile(r"[A-Za-z_]\w*", re.ASCII)


@dataclass(frozen=True)
class KubernetesOptions:
    """What a user says of his cluster. None is left to Kubernetes."""

    image: Annotated[str, Option("--image", metavar="NAME", help="Container image with Ringlab installed.")]
    name: Annotated[Text, Option("--name", metavar="NAME", help="Name of the Job.")] = None
    namespace: Annotated[Text, Option("-n", "--namespace", metavar="NAME", help="Namespace of the Job.")] = None
    time_limit: TimeLimitOpt = "24:00:00"
    claim: Annotated[
        Text, Option("--claim", metavar="NAME", help="PersistentVolumeClaim for checkpoints and logs.")
    ] = None  # where the ranks work, mounted at /data
    cpus: Annotated[Text, Option("--cpus", metavar="N", help="CPU cores per pod, shared by its ranks.")] = None
    memory: Annotated[Text, Option("--memory", metavar="SIZE", help="Memory per pod, such as 64Gi.")] = None
    port: Annotated[int, Option("--port", metavar="N", help="Port of the first pod, for the rendezvous.")] = PORT
    python: Annotated[
        str, Option("--python", metavar="FILE", help="Python interpreter in the image that has Ringlab.")
    ] = "python"
    service_account: Annotated[
        Text, Option("--service-account", metavar="NAME", help="Service account of the pods.")
    ] = None
    pull_secret: Annotated[
        Text, Option("--pull-secret", metavar="NAME", help="Name of the Secret for pulling the image.")
    ] = None
    node_selector: Annotated[
        list[str], Option("--node-selector", metavar="KEY=VALUE", help="Node label to select. Repeatable.")
    ] = field(default_factory=list)  # fmt: skip
    labels: Annotated[
        list[str], Option("--label", metavar="KEY=VALUE", help="Label for the Job and its pods. Repeatable.")
    ] = field(default_factory=list)  # fmt: skip
    environment: Annotated[
        list[str], Option("--env", metavar="NAME=VALUE", help="Environment variable for all ranks. Repeatable.")
    ] = field(default_factory=list)  # fmt: skip


@with_groups
def k8s(scenario: ScenarioArg, output: OutputOpt = None, *, job: JobOptions, options: KubernetesOptions) -> None:
    """Write a Kubernetes Job that runs the scenario under torchrun. Start it with `kubectl apply -f FILE`."""
    manifest = make_manifest(load_job(scenario, job, output), options)
    write_job(json.dumps(manifest, indent=2, ensure_ascii=False) + "\n", output, "kubectl apply -f")


def make_manifest(job: Job, options: KubernetesOptions) -> Object:
    """Return a List of what ``kubectl apply -f`` is to make. Raise InputError for an option that Kubernetes refuses.

    A scenario in a file is part of it, so it may not name other files. The Service has no address of its own: the pods
    find each other's names in DNS, also before all run.

    >>> found = make_manifest(Job("star8", "Eight hosts", 8, 1), KubernetesOptions("registry/ringlab:1"))
    >>> [(item["kind"], item["metadata"]["name"]) for item in found["items"]]
    [('Service', 'ringlab-star8'), ('Job', 'ringlab-star8')]
    """
    _check(job, options)
    name = options.name or job.name
    own = {"app.kubernetes.io/name": "ringlab", "app.kubernetes.io/instance": name}
    labels = {**own, **_pairs("--label", options.labels)}
    metadata = _without_none({"name": name, "labels": labels, "namespace": options.namespace})
    items: list[Object] = []
    if job.scenario not in shipped():
        file = f"{name}.toml"
        data = {file: _read_alone(Path(job.scenario), job)}
        items.append({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})
        job = replace(job, scenario=f"{SCENARIO_FOLDER}/{file}")
    service = {
        "clusterIP": "None",
        "publishNotReadyAddresses": True,
        "selector": own,
        "ports": [{"name": "rendezvous", "port": options.port}],
    }
    spec = {
        "completionMode": "Indexed",
        "completions": job.nodes,
        "parallelism": job.nodes,
        "backoffLimit": job.nodes * (job.options.max_restarts + 1),  # a pod that ends takes the others with it
        "activeDeadlineSeconds": parse_time_limit(options.time_limit),
        "template": {"metadata": {"labels": labels}, "spec": _pod(job, name, options)},
    }
    items.append({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": service})
    items.append({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec})
    return {"apiVersion": "v1", "kind": "List", "items": items}


def escape(text: str) -> str:
    """Return a text that a container gets as it is: Kubernetes replaces ``$(NAME)`` in commands and variables.

    >>> escape("$(HOME)")
    '$$(HOME)'
    """
    return text.replace("$", "$$")


def _without_none(found: Object) -> Object:
    return {key: value for key, value in found.items() if value is not None}


def _read_alone(path: Path, job: Job) -> str:
    """Return the text of a scenario file. Raise InputError for one that needs other files, which the pods lack."""
    text = read_text(path, FileBytes.IN_CONFIG_MAP)
    with TemporaryDirectory() as folder:
        alone = Path(folder, path.name)
        alone.write_text(text)
        try:
            for training in load(alone, job.options.overrides).trainings:
                for file in (training.model, str(training.data_folder)):
                    _, beside, name = file.partition(f"{Path(folder).name}/")
                    if beside:
                        raise InputError(f"{name} is not a file of the image")
        except InputError as error:
            raise InputError(
                f"{path}: the scenario refers to files next to it that the pods do not have; use their "
                f"paths in the image ({str(error).replace(f'{folder}/', '')})"
            ) from error
    return text


def _pod(job: Job, name: str, options: KubernetesOptions) -> Object:
    volumes: list[Object] = [{"name": "shm", "emptyDir": {"medium": "Memory"}}]  # 64 MiB are too few for NCCL
    mounts: list[Object] = [{"name": "shm", "mountPath": "/dev/shm"}]
    if job.scenario.startswith(SCENARIO_FOLDER):
        volumes.append({"name": "scenario", "configMap": {"name": name}})
        mounts.append({"name": "scenario", "mountPath": SCENARIO_FOLDER, "readOnly": True})
    if options.claim is not None:
        volumes.append({"name": "work", "persistentVolumeClaim": {"claimName": options.claim}})
        mounts.append({"name": "work", "mountPath": WORK_FOLDER})
    words = [*job.torchrun_options(), "--rdzv-id", name, "--rdzv-endpoint", f"{name}-0.{name}:{options.port}"]
    address = "--local-addr", "$(POD_IP)"  # what the other pods reach, whatever DNS knows by then
    container = {
        "name": "ranks",
        "image": options.image,
        "command": ["/bin/sh", "-c", escape(start_of_node("JOB_COMPLETION_INDEX"))],
        "args": [escape(options.python), *address, *map(escape, [*words, *job.command()])],
        "env": _environment(options),
        "ports": [{"name": "rendezvous", "containerPort": options.port}],
        "resources": _resources(job, options),
        "volumeMounts": mounts,
        "workingDir": WORK_FOLDER if options.claim is not None else None,
    }
    secret = options.pull_secret
    return _without_none(
        {
            "subdomain": name,
            "restartPolicy": "Never",
            "containers": [_without_none(container)],
            "volumes": volumes,
            "serviceAccountName": options.service_account,
            "imagePullSecrets": None if secret is None else [{"name": secret}],
            "nodeSelector": _pairs("--node-selector", options.node_selector) or None,
        }
    )


def _environment(options: KubernetesOptions) -> list[Object]:
    found: list[Object] = [{"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}]
    found.append({"name": FRESH_STORE, "value": "1"})
    for text in options.environment:
        name, equals, value = text.partition("=")
        if not equals or not _VARIABLE.fullmatch(name):
            raise InputError(f"--env {quote(text)}: expected NAME=VALUE")
        found.append({"name": name, "value": escape(value)})
    return found


def _resources(job: Job, options: KubernetesOptions) -> Object:
    requests = _without_none({"cpu": options.cpus, "memory": options.memory})
    limits = {"nvidia.com/gpu": str(job.gpus_per_node)} if job.gpus_per_node else None
    return _without_none({"requests": requests or None, "limits": limits})


def _check(job: Job, options: KubernetesOptions) -> None:
    """Raise InputError for what Kubernetes would refuse, or would lose."""
    if not options.image or not options.image.isascii() or re.search(r"[\s\x00-\x1f]", options.image):
        raise InputError(f"--image {quote(options.image)} is not an image name, such as registry/ringlab:1")
    check_port(options.port)
    names = {
        "--name": (options.name, _DNS_LABEL, 52),  # a pod adds its index and five random characters, up to 63
        "--namespace": (options.namespace, _DNS_LABEL, 63),
        "--claim": (options.claim, _DNS_NAME, 253),
        "--service-account": (options.service_account, _DNS_NAME, 253),
        "--pull-secret": (options.pull_secret, _DNS_NAME, 253),
    }
    for option, (name, pattern, most) in names.items():
        if name is not None and (not pattern.fullmatch(name) or len(name) > most):
            raise InputError(
                f"{option} {quote(name)} is not a valid name; use lowercase letters, digits and -, at "
                f"most {most} characters"
            )
    for option, quantity in (("--cpus", options.cpus), ("--memory", options.memory)):
        if quantity is not None and not _QUANTITY.fullmatch(quantity):
            raise InputError(f"{option} {quote(quantity)} is not a Kubernetes quantity, such as 16 or 64Gi")
    if options.claim is None and (job.resumes or job.options.log_dir):
        what = "checkpoints" if job.resumes else "logs"
        raise InputError(f"the {what} would be lost with the pod; specify a PersistentVolumeClaim with --claim")


def _pairs(option: str, texts: Iterable[str]) -> Object:
    """Return labels by key. Raise InputError for one that is none."""
    found = {}
    for text in texts:
        key, equals, value = text.partition("=")
        is_key = _LABEL_KEY.fullmatch(key) and len(key.rpartition("/")[2]) <= 63
        if not equals or not is_key or not _LABEL_VALUE.fullmatch(value) or len(value) > 63:
            raise InputError(f"{option} {quote(text)}: expected KEY=VALUE with letters, digits, -, _ and .")
        found[key] = value
    return found
