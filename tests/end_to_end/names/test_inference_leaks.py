"""Many requests of each kind of the Open Inference Protocol: memory, threads and descriptors of the service stay."""

import http.client
import json
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import grpc
import numpy as np
import pytest

from nnhal.inference import open_inference_pb2 as messages
from nnhal.inference.open_inference_pb2_grpc import GRPCInferenceServiceStub
from tests.end_to_end.support.process_usage import settled_usage, status_bytes
from tests.end_to_end.support.service_process import Service, http_address, start_service, stop_service
from tests.service.repository.counting import counting
from tests.service.repository.model_files import adding, put

ONES = np.ones(1000, np.float32)
GROWTH_BYTES = 4 * 2**20
"""Allowed growth of memory by all requests of a kind, 200 bytes for each of 20,000."""
SPARE = 2
"""Threads and descriptors that pools may have more at any time."""
REGION = Path(f"/dev/shm/nnhal-leaks-{os.getpid()}")
TIMEOUT_S = 120


class Client(NamedTuple):
    """Connections of a client to a service."""

    stub: GRPCInferenceServiceStub
    http: http.client.HTTPConnection

    def infer(self, request: messages.ModelInferRequest) -> None:
        self.stub.ModelInfer(request, timeout=TIMEOUT_S)

    def post(self, body: bytes, **headers: str) -> None:
        self.exchange("POST", "/v2/models/add/infer", body, headers)

    def exchange(self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]) -> None:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        while True:
            try:
                self.http.request(method, path, body, named)
                response = self.http.getresponse()
                response.read()
            except ConnectionError:  # the service has closed it because it was idle
                self.http.close()
            else:
                assert response.status == 200
                return


def request(model: str = "add", data: bytes | None = ONES.tobytes(), size: int = 1000) -> messages.ModelInferRequest:
    message = messages.ModelInferRequest(model_name=model, raw_input_contents=[] if data is None else [data])
    message.inputs.add(name="x", datatype="FP32", shape=[size])
    return message


def raw(client: Client, number: int) -> None:
    client.infer(request())


def typed(client: Client, number: int) -> None:
    message = request(data=None)
    message.inputs[0].contents.fp32_contents.extend(ONES)
    client.infer(message)


def shared(client: Client, number: int) -> None:
    register = messages.SystemSharedMemoryRegisterRequest(name="r", key=f"/{REGION.name}", byte_size=8000)
    client.stub.SystemSharedMemoryRegister(register, timeout=TIMEOUT_S)
    message = request(data=None)
    message.outputs.add(name="y")
    for tensor, offset in ((message.inputs[0], 0), (message.outputs[0], 4000)):
        tensor.parameters["shared_memory_region"].string_param = "r"
        tensor.parameters["shared_memory_byte_size"].int64_param = 4000
        tensor.parameters["shared_memory_offset"].int64_param = offset
    client.infer(message)
    client.stub.SystemSharedMemoryUnregister(messages.SystemSharedMemoryUnregisterRequest(), timeout=TIMEOUT_S)


def sequence(client: Client, number: int) -> None:
    for name in ("start", "end"):
        message = request("count", ONES[:2].tobytes(), 2)
        message.parameters["sequence_id"].int64_param = number + 1
        message.parameters[f"sequence_{name}"].bool_param = True
        client.infer(message)


def stream(client: Client, number: int) -> None:
    responses = list(client.stub.ModelStreamInfer(iter([request(), request("other"), request()]), timeout=TIMEOUT_S))
    assert [bool(response.error_message) for response in responses] == [False, True, False]


def error(client: Client, number: int) -> None:
    for wrong in (request(f"other{number}"), request(size=999), request(data=b"")):
        with pytest.raises(grpc.RpcError):
            client.infer(wrong)


def description(client: Client, number: int) -> None:
    client.stub.ModelMetadata(messages.ModelMetadataRequest(name="add"), timeout=TIMEOUT_S)
    client.stub.RepositoryIndex(messages.RepositoryIndexRequest(), timeout=TIMEOUT_S)
    client.stub.ModelStatistics(messages.ModelStatisticsRequest(), timeout=TIMEOUT_S)


def json_body(client: Client, number: int) -> None:
    tensor = {"name": "x", "datatype": "FP32", "shape": [1000], "data": ONES.tolist()}
    client.post(json.dumps({"inputs": [tensor]}).encode())


def binary_body(client: Client, number: int) -> None:
    tensor = {"name": "x", "datatype": "FP32", "shape": [1000], "parameters": {"binary_data_size": 4000}}
    head = json.dumps({"inputs": [tensor], "parameters": {"binary_data_output": True}}).encode()
    client.post(head + ONES.tobytes(), inference_header_content_length=str(len(head)))


def connection(client: Client, number: int) -> None:
    if number % 10 == 0:  # each of them leaves a port for a minute
        client.http.close()
    client.exchange("GET", "/v2/models/add", None, {})


KINDS: Mapping[str, Callable[[Client, int], None]] = {
    kind.__name__: kind
    for kind in (raw, typed, shared, sequence, stream, error, description, json_body, binary_body, connection)
}


def pids(service: Service) -> list[int]:
    """Return the processes that have a part in requests: the worker, and the process with the HTTP port."""
    children = Path(f"/proc/{service.process.pid}/task/{service.process.pid}/children").read_text().split()
    return [service.pid, *(int(pid) for pid in children if "admin" in Path(f"/proc/{pid}/comm").read_text())]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("leaks")
    put(folder / "models/add.tflite", adding(1, 1000))
    put(folder / "models/count.tflite", counting())
    options = ("--models", str(folder / "models"), "--models-shm", "--http-listen", "127.0.0.1:0")
    running = start_service(folder, *options)
    REGION.write_bytes(bytes(8000))
    yield running
    REGION.unlink()
    stop_service(running)


@pytest.fixture(scope="module")
def client(service: Service) -> Iterator[Client]:
    connected = http.client.HTTPConnection(http_address(service), timeout=TIMEOUT_S)
    with grpc.insecure_channel(service.target) as channel:
        yield Client(GRPCInferenceServiceStub(channel), connected)
    connected.close()


@pytest.mark.parametrize(
    ("kinds", "count"),
    [
        pytest.param(list(KINDS), 20, marks=pytest.mark.slow, id="all"),
        *(pytest.param([kind], 20_000, marks=pytest.mark.nightly, id=kind) for kind in KINDS),
    ],
)
def test_requests_leave_nothing(service: Service, client: Client, kinds: list[str], count: int) -> None:
    def run(number_of_calls: int) -> None:
        for kind in kinds:
            for number in range(number_of_calls):
                KINDS[kind](client, number)

    run(max(20, count // 10))
    before = {pid: (settled_usage(pid), status_bytes(pid, "VmRSS")) for pid in pids(service)}
    assert len(before) == 2
    run(count)
    for pid, (usage, resident) in before.items():
        now = settled_usage(pid)
        assert now.descriptors <= usage.descriptors + SPARE and now.threads <= usage.threads + SPARE
        assert status_bytes(pid, "VmRSS") < resident + GROWTH_BYTES
