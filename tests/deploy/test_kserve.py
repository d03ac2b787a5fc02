"""The runtime for KServe: its fields, its consistency with the service, and the folders of models that it serves."""

import http.client
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from nnhal.inference import open_inference_pb2 as messages
from nnhal.inference.open_inference_pb2_grpc import GRPCInferenceServiceStub
from nnhal_service.settings import Settings
from tests.deploy.kserve import faults
from tests.deploy.manifests import DEPLOY, parsed, the, validate
from tests.end_to_end.support.service_process import http_address, start_service, stop_service
from tests.service.repository.model_files import adding, put

RESOURCES = parsed((DEPLOY / "kubernetes" / "kserve.yaml").read_text())
RUNTIME = the("ServingRuntime", RESOURCES)["spec"]
SERVICES = {each["metadata"]["name"]: each for each in RESOURCES if each["kind"] == "InferenceService"}
(CONTAINER,) = RUNTIME["containers"]
VARIABLES = {variable["name"]: variable["value"] for variable in CONTAINER["env"]}
FOLDER = "/mnt/models"
"""Folder into which KServe puts models."""


@pytest.mark.slow
def test_resources_follow_the_types_of_kserve() -> None:
    for resource in RESOURCES:
        version = resource["apiVersion"].removeprefix("serving.kserve.io/")
        assert list(faults(resource, version.capitalize() + resource["kind"], resource["kind"])) == []
    wrong = {"apiVersion": "serving.kserve.io/v1beta1", "spec": {"predictor": {"model": {"image": 1, "other": 2}}}}
    assert sorted(faults(wrong, "V1beta1InferenceService", "")) == [
        ".spec.predictor.model.image: 1 is not a str",
        ".spec.predictor.model.other: unknown",
        ".spec.predictor.model: no modelFormat",
    ]


def test_container_follows_the_schema_of_kubernetes() -> None:
    pod = {"containers": RUNTIME["containers"], "volumes": RUNTIME["volumes"]}
    validate([{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": pod}])


def test_services_fit_the_runtime() -> None:
    assert CONTAINER["name"] == "kserve-container", "KServe demands this name"
    assert set(VARIABLES) <= {f"NNHAL_{name.upper()}" for name in Settings.model_fields}
    formats = {each["name"] for each in RUNTIME["supportedModelFormats"] if each["autoSelect"]}
    for service in SERVICES.values():
        model = service["spec"]["predictor"]["model"]
        assert model["runtime"] == the("ServingRuntime", RESOURCES)["metadata"]["name"]
        assert model["modelFormat"]["name"] in formats
        assert model["protocolVersion"] in RUNTIME["protocolVersions"]
        for port in model.get("ports", []):
            assert VARIABLES["NNHAL_LISTEN"].endswith(f":{port['containerPort']}") and port["name"] == "h2c"
    http_port = int(VARIABLES["NNHAL_HTTP_LISTEN"].rpartition(":")[2])
    assert http_port == 8080, "KServe sends requests to this port where a service names none"
    probes = [CONTAINER[f"{kind}Probe"]["httpGet"] for kind in ("startup", "readiness", "liveness")]
    assert {probe["port"] for probe in probes} == {http_port}
    assert RUNTIME["annotations"]["prometheus.kserve.io/port"] == str(http_port)


def test_container_is_that_of_the_chart() -> None:
    plain = parsed((DEPLOY / "kubernetes" / "nnhal.yaml").read_text())
    pod = the("StatefulSet", plain)["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    security = dict(CONTAINER["securityContext"])
    assert security.pop("runAsNonRoot") and security.pop("seccompProfile") == {"type": "RuntimeDefault"}
    assert security == container["securityContext"]
    for name in ("image", "args", "resources", "lifecycle"):
        assert CONTAINER[name] == container[name]


def store(folder: Path) -> None:
    """Put files where KServe puts those of its services."""
    speech = SERVICES["speech"]["spec"]["predictor"]["storageUris"][0]
    put(Path(speech["mountPath"].replace(FOLDER, str(folder))) / speech["uri"].rpartition("/")[2], adding(1))
    put(folder / "model.tflite", adding(2))
    put(folder / "classifier/config.pbtxt", b'name: "classifier"')
    for version in (1, 3):
        put(folder / f"classifier/{version}/model.tflite", adding(version))


@pytest.fixture(scope="module")
def addresses(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """Run the runtime with its own variables for a service `vision`. Yield its addresses for HTTP and gRPC."""
    folder = tmp_path_factory.mktemp("kserve")
    store(folder / "models")
    local = {"NNHAL_LISTEN": "127.0.0.1:0", "NNHAL_HTTP_LISTEN": "127.0.0.1:0", "NNHAL_MODELS": str(folder / "models")}
    variables = {name: value.replace("{{.Name}}", "vision") for name, value in VARIABLES.items()}
    variables = {name: value.replace("{{.Namespace}}", "models") for name, value in variables.items()}
    service = start_service(folder, **{**variables, **local})
    yield http_address(service), service.target
    stop_service(service)


@pytest.mark.slow
def test_each_layout_of_a_folder_is_served(addresses: tuple[str, str]) -> None:
    body = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [2], "data": [0, 0]}]}
    connection = http.client.HTTPConnection(addresses[0], timeout=120)

    def ask(path: str, host: str, content: Any = None) -> Any:
        text = None if content is None else json.dumps(content)
        connection.request("GET" if content is None else "POST", path, text, {"Host": host})
        response = connection.getresponse()
        return response.status, json.loads(response.read() or b"null")

    for host in ("vision-predictor", "vision-predictor.models.svc.cluster.local:80"):
        for path, expected in {"speech": 1, "model": 2, "classifier": 3, "classifier/versions/1": 1}.items():
            status, answer = ask(f"/v2/models/{path}/infer", host, body)
            assert (status, answer["outputs"][0]["data"]) == (200, [expected] * 2), path
    assert ask("/v2/models/model", "other.example")[0] == 421
    for probe in ("startup", "readiness", "liveness"):
        assert ask(CONTAINER[f"{probe}Probe"]["httpGet"]["path"], "10.0.0.1:8080")[0] == 200
    connection.close()
    with grpc.insecure_channel(addresses[1]) as channel:
        request = messages.ModelInferRequest(model_name="speech", raw_input_contents=[bytes(8)])
        request.inputs.add(name="x", datatype="FP32", shape=[2])
        response = GRPCInferenceServiceStub(channel).ModelInfer(request, timeout=120)
    assert list(np.frombuffer(response.raw_output_contents[0], np.float32)) == [1, 1]
