"""What Kubernetes accepts of a Job, a Service and a ConfigMap, as far as a training needs it.

Written down from the API reference (batch/v1 and v1). Every field has its type, an unknown field is refused as the
server's strict validation refuses it, and names obey RFC 1123, a Service's RFC 1035.
"""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

Label = Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")]  # RFC 1123
ServiceName = Annotated[str, Field(pattern=r"^[a-z]([-a-z0-9]{0,61}[a-z0-9])?$")]  # RFC 1035
Subdomain = Annotated[str, Field(pattern=r"^[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?$")]
PortName = Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9]{0,13}[a-z0-9])?$")]
Port = Annotated[int, Field(ge=1, le=65535)]
LabelKey = Annotated[str, Field(pattern=r"^([a-z0-9][-.a-z0-9]{0,252}/)?[A-Za-z0-9]([-\w.]{0,61}[A-Za-z0-9])?$")]
LabelValue = Annotated[str, Field(pattern=r"^([A-Za-z0-9]([-\w.]{0,61}[A-Za-z0-9])?)?$")]
Quantity = Annotated[str, Field(pattern=r"^[0-9]+(\.[0-9]+)?(m|k|Ki|M|Mi|G|Gi|T|Ti)?$")]
Labels = dict[LabelKey, LabelValue]


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class Metadata(Strict):
    name: Subdomain
    namespace: Label | None = None
    labels: Labels = {}


class TemplateMetadata(Strict):
    labels: Labels


class ConfigMap(Strict):
    apiVersion: Literal["v1"]  # noqa: N815 - as Kubernetes calls it, here and below
    kind: Literal["ConfigMap"]
    metadata: Metadata
    data: dict[Annotated[str, Field(pattern=r"^[-._a-zA-Z0-9]{1,253}$")], str]


class ServicePort(Strict):
    name: PortName
    port: Port


class ServiceSpec(Strict):
    clusterIP: Literal["None"]  # noqa: N815
    publishNotReadyAddresses: bool  # noqa: N815
    selector: Labels
    ports: list[ServicePort]


class ServiceMetadata(Metadata):
    name: ServiceName


class Service(Strict):
    apiVersion: Literal["v1"]  # noqa: N815
    kind: Literal["Service"]
    metadata: ServiceMetadata
    spec: ServiceSpec


class FieldRef(Strict):
    fieldPath: Literal["status.podIP", "metadata.name"]  # noqa: N815


class ValueFrom(Strict):
    fieldRef: FieldRef  # noqa: N815


class Variable(Strict):
    name: Annotated[str, Field(pattern=r"^[-._a-zA-Z][-._a-zA-Z0-9]*$")]
    value: str | None = None
    valueFrom: ValueFrom | None = None  # noqa: N815


class ContainerPort(Strict):
    name: PortName
    containerPort: Port  # noqa: N815


class Mount(Strict):
    name: Label
    mountPath: Annotated[str, Field(pattern=r"^/[^:]+$")]  # noqa: N815
    readOnly: bool = False  # noqa: N815


class Resources(Strict):
    requests: dict[Literal["cpu", "memory"], Quantity] = {}
    limits: dict[Literal["nvidia.com/gpu"], Annotated[str, Field(pattern=r"^[0-9]+$")]] = {}


class Container(Strict):
    name: Label
    image: Annotated[str, Field(min_length=1)]
    command: list[str]
    args: list[str]
    env: list[Variable]
    ports: list[ContainerPort]
    resources: Resources
    volumeMounts: list[Mount]  # noqa: N815
    workingDir: str | None = None  # noqa: N815


class EmptyDir(Strict):
    medium: Literal["", "Memory"]


class NamedMap(Strict):
    name: Subdomain


class Claim(Strict):
    claimName: Subdomain  # noqa: N815


class Volume(Strict):
    name: Label
    emptyDir: EmptyDir | None = None  # noqa: N815
    configMap: NamedMap | None = None  # noqa: N815
    persistentVolumeClaim: Claim | None = None  # noqa: N815


class PodSpec(Strict):
    subdomain: Label
    restartPolicy: Literal["Never", "OnFailure"]  # noqa: N815 - those that a Job may have
    containers: Annotated[list[Container], Field(min_length=1)]
    volumes: list[Volume]
    serviceAccountName: Subdomain | None = None  # noqa: N815
    imagePullSecrets: list[NamedMap] = []  # noqa: N815
    nodeSelector: Labels = {}  # noqa: N815


class Template(Strict):
    metadata: TemplateMetadata
    spec: PodSpec


class JobSpec(Strict):
    completionMode: Literal["Indexed"]  # noqa: N815
    completions: Annotated[int, Field(ge=1)]
    parallelism: Annotated[int, Field(ge=1)]
    backoffLimit: Annotated[int, Field(ge=0)]  # noqa: N815
    activeDeadlineSeconds: Annotated[int, Field(ge=1)]  # noqa: N815
    template: Template


class JobMetadata(Metadata):
    name: Label


class Job(Strict):
    apiVersion: Literal["batch/v1"]  # noqa: N815
    kind: Literal["Job"]
    metadata: JobMetadata
    spec: JobSpec


Item = Annotated[ConfigMap | Service | Job, Field(discriminator="kind")]


class Manifest(Strict):
    apiVersion: Literal["v1"]  # noqa: N815
    kind: Literal["List"]
    items: list[Item]
