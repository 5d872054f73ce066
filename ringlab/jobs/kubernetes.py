"""A job as a manifest of Kubernetes: an indexed Job, the headless Service by which its pods meet, and the scenario.

Sources: the API reference of batch/v1 and v1, and https://kubernetes.io/docs/concepts/workloads/controllers/job/.
"""

import re
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from collectives.errors import InputError
from collectives.input_files import read_text
from collectives.quoting import quote
from ringlab.jobs.job import FRESH_STORE, START, WAIT_S, Job, check_port, on_the_nodes, parse_time_limit
from ringlab.jobs.options import KubernetesOptions
from scenarios import load, toml_files

MOST_SCENARIO_BYTES = 1 << 20  # that a ConfigMap holds
SCENARIO_FOLDER, WORK_FOLDER = "/etc/ringlab", "/data"
MOST_NAME = 52  # a pod is called by it, its index and five random characters, in 63 characters together

Table = dict[str, Any]

_DNS_LABEL = re.compile(r"[a-z](?:[a-z0-9-]*[a-z0-9])?", re.ASCII)  # RFC 1035: a Service's name begins with a letter
_DNS_NAME = re.compile(r"[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?", re.ASCII)  # RFC 1123 subdomain
_QUANTITY = re.compile(r"\d+(?:\.\d+)?(?:m|k|Ki|M|Mi|G|Gi|T|Ti)?", re.ASCII)
_LABEL_KEY = re.compile(r"(?:[a-z0-9][a-z0-9.-]*/)?[A-Za-z0-9](?:[\w.-]*[A-Za-z0-9])?", re.ASCII)
_LABEL_VALUE = re.compile(r"(?:[A-Za-z0-9](?:[\w.-]*[A-Za-z0-9])?)?", re.ASCII)
_VARIABLE = re.compile(r"[A-Za-z_]\w*", re.ASCII)


def make_manifest(job: Job, options: KubernetesOptions) -> Table:
    """Return a List of what ``kubectl apply -f`` is to make. Raise InputError for an option that Kubernetes refuses.

    A scenario in a file is part of it, so it may not name other files.

    >>> found = make_manifest(Job("star8", "Eight hosts", 8, 1), KubernetesOptions("registry/ringlab:1"))
    >>> [(item["kind"], item["metadata"]["name"]) for item in found["items"]]
    [('Service', 'ringlab-star8'), ('Job', 'ringlab-star8')]
    """
    _check(job, options)
    name = options.name or job_name(job.scenario)
    metadata: Table = {"name": name, "labels": _labels(name, options)}
    if options.namespace is not None:
        metadata["namespace"] = options.namespace
    items = []
    if job.scenario not in toml_files.shipped():
        path = Path(job.scenario)
        file = f"{name}.toml"
        items.append(
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {file: _read_alone(path, job)}}
        )
        job = on_the_nodes(job, f"{SCENARIO_FOLDER}/{file}")
    items += [
        {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": _service(name, options)},
        {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": _job(job, name, options)},
    ]
    return {"apiVersion": "v1", "kind": "List", "items": items}


def job_name(scenario: str) -> str:
    """Return a name for the Job of a scenario.

    >>> job_name("emulated/My run.toml")
    'ringlab-my-run'
    """
    words = re.sub(r"[^a-z0-9]+", "-", Path(scenario).stem.lower()).strip("-")
    return f"ringlab-{words}"[:MOST_NAME].rstrip("-")


def escape(text: str) -> str:
    """Return a text that a container gets as it is: Kubernetes replaces ``$(NAME)`` in commands and variables.

    >>> escape("$(HOME)")
    '$$(HOME)'
    """
    return text.replace("$", "$$")


def _read_alone(path: Path, job: Job) -> str:
    """Return the text of a scenario file. Raise InputError for one that needs other files, which the pods lack."""
    text = read_text(path, MOST_SCENARIO_BYTES)
    with TemporaryDirectory() as folder:
        alone = Path(folder, path.name)
        alone.write_text(text)
        try:
            for training in load(alone, job.overrides).trainings:
                for file in (training.model, str(training.data_folder)):
                    _, beside, name = file.partition(f"{Path(folder).name}/")
                    if beside:
                        raise InputError(f"{name} is no file of the image")
        except InputError as error:
            raise InputError(
                f"{path}: it names files that lie beside it, which the pods lack; name them by the paths that they "
                f"have in the image ({str(error).replace(f'{folder}/', '')})"
            ) from error
    return text


def _labels(name: str, options: KubernetesOptions) -> Table:
    return {**_own_labels(name), **_pairs("--label", options.labels)}


def _own_labels(name: str) -> Table:
    return {"app.kubernetes.io/name": "ringlab", "app.kubernetes.io/instance": name}


def _service(name: str, options: KubernetesOptions) -> Table:
    """Return a Service without an address of its own: the pods find each other's names in DNS, also before all run."""
    return {
        "clusterIP": "None",
        "publishNotReadyAddresses": True,
        "selector": _own_labels(name),
        "ports": [{"name": "rendezvous", "port": options.port}],
    }


def _job(job: Job, name: str, options: KubernetesOptions) -> Table:
    return {
        "completionMode": "Indexed",
        "completions": job.nodes,
        "parallelism": job.nodes,
        "backoffLimit": job.nodes * (job.max_restarts + 1),  # a pod that ends takes the others with it
        "activeDeadlineSeconds": parse_time_limit(options.time_limit),
        "template": {"metadata": {"labels": _labels(name, options)}, "spec": _pod(job, name, options)},
    }


def _pod(job: Job, name: str, options: KubernetesOptions) -> Table:
    volumes: list[Table] = [{"name": "shm", "emptyDir": {"medium": "Memory"}}]  # 64 MiB are too few for NCCL
    mounts: list[Table] = [{"name": "shm", "mountPath": "/dev/shm"}]
    if job.scenario.startswith(SCENARIO_FOLDER):
        volumes.append({"name": "scenario", "configMap": {"name": name}})
        mounts.append({"name": "scenario", "mountPath": SCENARIO_FOLDER, "readOnly": True})
    container: Table = {
        "name": "ranks",
        "image": options.image,
        "command": ["/bin/sh", "-c", escape(START.format(index="JOB_COMPLETION_INDEX", wait=WAIT_S))],
        "args": [*map(escape, _arguments(job, name, options)), *map(escape, job.command())],
        "env": _environment(options),
        "ports": [{"name": "rendezvous", "containerPort": options.port}],
        "resources": _resources(job, options),
        "volumeMounts": mounts,
    }
    container["args"][1:1] = ["--local-addr", "$(POD_IP)"]  # what the other pods reach, whatever DNS knows by then
    if options.claim is not None:
        volumes.append({"name": "work", "persistentVolumeClaim": {"claimName": options.claim}})
        mounts.append({"name": "work", "mountPath": WORK_FOLDER})
        container["workingDir"] = WORK_FOLDER
    pod: Table = {"subdomain": name, "restartPolicy": "Never", "containers": [container], "volumes": volumes}
    if options.service_account is not None:
        pod["serviceAccountName"] = options.service_account
    if options.pull_secret is not None:
        pod["imagePullSecrets"] = [{"name": options.pull_secret}]
    if options.node_selector:
        pod["nodeSelector"] = _pairs("--node-selector", options.node_selector)
    return pod


def _arguments(job: Job, name: str, options: KubernetesOptions) -> list[str]:
    """Return what ``START`` runs: Python and the options of torchrun."""
    endpoint = f"{name}-0.{name}:{options.port}"
    return [options.python, *job.torchrun_options(), "--rdzv-id", name, "--rdzv-endpoint", endpoint]


def _environment(options: KubernetesOptions) -> list[Table]:
    found: list[Table] = [{"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}]
    found.append({"name": FRESH_STORE, "value": "1"})
    for text in options.environment:
        name, equals, value = text.partition("=")
        if not equals or not _VARIABLE.fullmatch(name):
            raise InputError(f"--env {quote(text)}: write NAME=VALUE")
        found.append({"name": name, "value": escape(value)})
    return found


def _resources(job: Job, options: KubernetesOptions) -> Table:
    wanted = {"cpu": options.cpus, "memory": options.memory}
    requests: Table = {name: value for name, value in wanted.items() if value is not None}
    found: Table = {"requests": requests} if requests else {}
    if job.gpus_per_node:
        found["limits"] = {"nvidia.com/gpu": str(job.gpus_per_node)}
    return found


def _check(job: Job, options: KubernetesOptions) -> None:
    """Raise InputError for what Kubernetes would refuse, or would lose."""
    if not options.image or not options.image.isascii() or re.search(r"[\s\x00-\x1f]", options.image):
        raise InputError(f"--image is {quote(options.image)}; give an image's name, such as registry/ringlab:1")
    check_port(options.port)
    names = {
        "--name": (options.name, _DNS_LABEL, MOST_NAME),
        "--namespace": (options.namespace, _DNS_LABEL, 63),
        "--claim": (options.claim, _DNS_NAME, 253),
        "--service-account": (options.service_account, _DNS_NAME, 253),
        "--pull-secret": (options.pull_secret, _DNS_NAME, 253),
    }
    for option, (name, pattern, most) in names.items():
        if name is not None and (not pattern.fullmatch(name) or len(name) > most):
            raise InputError(
                f"{option} is {quote(name)}; give a name of small letters, digits and -, at most {most} characters"
            )
    for option, quantity in (("--cpus", options.cpus), ("--memory", options.memory)):
        if quantity is not None and not _QUANTITY.fullmatch(quantity):
            raise InputError(f"{option} is {quote(quantity)}; give a quantity of Kubernetes, such as 16 or 64Gi")
    if options.claim is None and (job.resumes or job.log_dir):
        what = "checkpoints" if job.resumes else "logs"
        raise InputError(f"the {what} would end with their pod; name a PersistentVolumeClaim for them with --claim")


def _pairs(option: str, texts: Iterable[str]) -> Table:
    """Return labels by key. Raise InputError for one that is none."""
    found = {}
    for text in texts:
        key, equals, value = text.partition("=")
        is_key = _LABEL_KEY.fullmatch(key) and len(key.rpartition("/")[2]) <= 63
        if not equals or not is_key or not _LABEL_VALUE.fullmatch(value) or len(value) > 63:
            raise InputError(f"{option} {quote(text)}: write KEY=VALUE of letters, digits, -, _ and .")
        found[key] = value
    return found
