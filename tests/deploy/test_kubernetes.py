"""The Helm chart and the plain manifests: valid, equal, strict, and consistent with the service."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from nnhal.services import SERVICES
from nnhal_driver.backends.registry import registered_ids
from nnhal_service.metrics.catalog import METRICS
from nnhal_service.settings import Settings
from tests.deploy.helm import run_helm
from tests.deploy.manifests import DEPLOY, parsed, the, validate

CHART, PLAIN = DEPLOY / "helm" / "nnhal", DEPLOY / "kubernetes" / "nnhal.yaml"
OPTIONS = {
    "default": "",
    "everything": "tls.secretName=tls,tls.clientCaKey=ca.crt,tokens.secretName=tokens,serviceMonitor.enabled=true,"
    "persistence.storageClassName=fast,replicas=3,imagePullSecrets[0].name=pull,"
    "serviceMonitor.authorization.secretName=observer,prometheusRule.enabled=true,autoscaling.enabled=true,"
    "ingress.enabled=true,ingress.host=nnhal.example,ingress.tlsSecretName=outer,"
    "jwt.issuer=https://issuer.example,jwt.audience=nnhal,jwt.keysSecretName=keys",
    "gpu": "gpu.resource=nvidia.com/gpu,gpu.count=2,gpu.runtimeClassName=nvidia,gpu.groups={44,105}",
    "minimum": "http.enabled=false,persistence.enabled=false,networkPolicy.enabled=false,"
    "podDisruptionBudget.enabled=false,topologySpread=null",
}
WRONG = {
    "replica=3": "additional properties 'replica' not allowed",
    "service.type=Anything": "value must be one of",
    "gpu.resource=GPU": "does not match pattern",
    "image.digest=sha256:1": "does not match pattern",
    "ingress.enabled=true": "ingress.tlsSecretName: gRPC needs TLS at an Ingress",
    "jwt.issuer=https://a.example,jwt.audience=b": "jwt.keysUrl or jwt.keysSecretName: the keys of the issuer",
    "jwt.issuer=https://a.example,jwt.keysUrl=https://a.example": "jwt.audience: tokens for others must not be valid",
}
"""Values that the chart refuses, and why."""


def helm(*arguments: object) -> str:
    done = run_helm(*arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_rendered_resources_follow_the_schemas(options: str) -> None:
    text = helm("template", "nnhal", CHART, "--namespace", "nnhal", "--set", options)
    validate(parsed(text))


def test_manifests_follow_the_schemas() -> None:
    validate(parsed(PLAIN.read_text()))


@pytest.mark.slow
def test_chart_has_no_faults() -> None:
    assert "0 chart(s) failed" in helm("lint", "--strict", CHART)


@pytest.mark.slow
def test_manifests_are_those_of_the_chart() -> None:
    rendered = helm("template", "nnhal", CHART, "--namespace", "nnhal")
    assert "".join(PLAIN.read_text().splitlines(keepends=True)[2:]) == rendered


def test_pods_are_restricted() -> None:
    pod = the("StatefulSet", parsed(PLAIN.read_text()))["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert (
        pod["securityContext"]["runAsNonRoot"] and pod["securityContext"]["seccompProfile"]["type"] == "RuntimeDefault"
    )
    assert not pod["automountServiceAccountToken"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert {mount["mountPath"] for mount in container["volumeMounts"]} == {"/var/lib/nnhal", "/tmp", "/etc/nnhal"}


def test_pods_have_time_to_stop_and_probes_of_the_service() -> None:
    pod = the("StatefulSet", parsed(PLAIN.read_text()))["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    variables = {variable["name"]: variable["value"] for variable in container["env"]}
    assert {name.removeprefix("NNHAL_").lower() for name in variables} <= set(Settings.model_fields)
    _, pause = container["lifecycle"]["preStop"]["exec"]["command"]
    assert pod["terminationGracePeriodSeconds"] >= int(pause) + float(variables["NNHAL_STOP_GRACE_S"]) + 2
    probes = [container[name]["grpc"] for name in ("startupProbe", "readinessProbe", "livenessProbe")]
    assert {probe["port"] for probe in probes} == {50051}
    known = {service.descriptor.full_name for service in SERVICES.values()}
    assert {probe["service"] for probe in probes if "service" in probe} <= known


@pytest.mark.slow
def test_encrypted_services_are_checked_over_their_unix_socket() -> None:
    resources = parsed(helm("template", "nnhal", CHART, "--set", OPTIONS["everything"]))
    (container,) = the("StatefulSet", resources)["spec"]["template"]["spec"]["containers"]
    assert container["readinessProbe"]["exec"]["command"] == ["healthcheck", "nnhal.v1.Device"]
    assert "NNHAL_INSECURE" not in [variable["name"] for variable in container["env"]]


@pytest.mark.slow
def test_pods_get_a_gpu() -> None:
    resources = parsed(helm("template", "nnhal", CHART, "--set", OPTIONS["gpu"]))
    pod = the("StatefulSet", resources)["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["resources"]["limits"] == {"memory": "4Gi", "nvidia.com/gpu": 2}
    assert container["resources"]["requests"] == {"cpu": "1", "memory": "1Gi"}
    assert pod["runtimeClassName"] == "nvidia" and pod["securityContext"]["supplementalGroups"] == [44, 105]
    variables = {variable["name"]: variable["value"] for variable in container["env"]}
    assert "graphics" in variables["NVIDIA_DRIVER_CAPABILITIES"].split(",")
    assert set(variables["NNHAL_BACKENDS"].split(",")) <= set(registered_ids())


@pytest.mark.slow
@pytest.mark.parametrize(("values", "reason"), WRONG.items())
def test_wrong_values_are_refused(values: str, reason: str) -> None:
    done = run_helm("template", "nnhal", CHART, "--set", values)
    assert done.returncode != 0 and reason in done.stderr


@pytest.mark.slow
def test_options_of_the_chart_reach_their_resources() -> None:
    resources = parsed(helm("template", "nnhal", CHART, "--set", OPTIONS["everything"]))
    pods = the("StatefulSet", resources)["spec"]
    (container,) = pods["template"]["spec"]["containers"]
    variables = {variable["name"]: variable["value"] for variable in container["env"]}
    assert {name.removeprefix("NNHAL_").lower() for name in variables} <= set(Settings.model_fields)
    assert variables["NNHAL_JWT_KEYS"] == "/run/secrets/nnhal-jwt/jwks.json"
    assert "replicas" not in pods, "the autoscaler decides"
    (endpoint,) = the("ServiceMonitor", resources)["spec"]["endpoints"]
    assert endpoint["authorization"]["credentials"] == {"name": "observer", "key": "token"}
    alerts = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yml").read_text())
    assert the("PrometheusRule", resources)["spec"] == alerts
    (metric,) = the("HorizontalPodAutoscaler", resources)["spec"]["metrics"]
    assert metric["pods"]["metric"]["name"] in METRICS
    annotations = the("Ingress", resources)["metadata"]["annotations"]
    assert annotations["nginx.ingress.kubernetes.io/backend-protocol"] == "GRPCS"
    assert annotations["nginx.ingress.kubernetes.io/upstream-hash-by"]


def paths(values: Any, path: str = "") -> Iterator[str]:
    """Yield the names of all values."""
    for name, value in values.items():
        yield f"{path}/{name}"
        if isinstance(value, dict):
            yield from paths(value, f"{path}/{name}")


def test_schema_has_all_values_of_the_chart() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    schema = json.loads((CHART / "values.schema.json").read_text())
    for path in paths(values):
        entry = schema
        for name in path.strip("/").split("/"):
            entry = entry.get("properties", {}).get(name) or ({"type": "free"} if "properties" not in entry else None)
            assert entry is not None, path
