"""The Open Inference Protocol over HTTP: identities, requests that are refused, a worker that dies, and mutations."""

import gzip
import http.client
import json
import os
import random
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from nnhal_service.identity.tokens import create_token
from tests.end_to_end.support.service_process import Service, http_address, start_service, stop_service
from tests.service.repository.counting import counting
from tests.service.repository.model_files import adding, put

TIMEOUT_S = 120.0
INFER = "/v2/models/add/infer"
REQUEST: dict[str, Any] = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [2], "data": [1, 2]}]}
ALL = "/v2/models/add", "/v2/models/stats", "/v2/repository/index", "/v2/models/count/infer", INFER


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("names")
    put(folder / "models/add.tflite", adding(1))
    put(folder / "models/count.tflite", counting())
    running = start_service(folder, "--models", str(folder / "models"), "--http-listen", "127.0.0.1:0")
    yield running
    stop_service(running)


@pytest.fixture
def connection(service: Service) -> Iterator[http.client.HTTPConnection]:
    connected = http.client.HTTPConnection(http_address(service), timeout=TIMEOUT_S)
    yield connected
    connected.close()


def send(
    connection: http.client.HTTPConnection, path: str, body: bytes | None = None, **headers: str
) -> tuple[int, bytes]:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request("GET" if body is None else "POST", path, body, named)
    response = connection.getresponse()
    return response.status, response.read()


def infer(connection: http.client.HTTPConnection, **headers: str) -> list[float]:
    status, body = send(connection, INFER, json.dumps(REQUEST).encode(), **headers)
    assert status == 200, body
    (output,) = json.loads(body)["outputs"]
    return list(output["data"])


def test_requests_that_are_refused(connection: http.client.HTTPConnection) -> None:
    body = json.dumps(REQUEST).encode()
    for status, text, path, content, headers in (
        (403, "another site", INFER, body, {"sec_fetch_site": "cross-site"}),
        (403, "another origin", INFER, body, {"origin": "http://evil.example"}),
        (421, "unknown host", INFER, body, {"host": "evil.example"}),
        (413, "message_bytes", INFER, bytes(2**22 + 1), {}),
        (413, "message_bytes", INFER, gzip.compress(bytes(2**24)), {"content_encoding": "gzip"}),
        (415, "unknown content encoding", INFER, body, {"content_encoding": "br"}),
        (400, "expected a number", INFER, body, {"inference_header_content_length": "a"}),
        (400, "expected a number", INFER, body, {"inference_header_content_length": "9" * 5000}),
        (400, 'no "other" field', "/v2/repository/index", b'{"other": 1}', {}),
        (405, "expected POST", INFER, None, {}),
        (405, "expected GET, HEAD", "/v2/models/add", b"", {}),
        (404, "there is no", "/v2/other", None, {}),
        (404, "there is no", "/v2/models/a%2Fb/infer", b"", {}),
        (405, "", "/other", b"", {"x_nnhal_request": "1", "content_type": "application/json"}),
        (501, "--models-shm", "/v2/systemsharedmemory/region/a/register", b'{"key": "a", "byte_size": 1}', {}),
    ):
        found = send(connection, path, content, **headers)
        assert (found[0], text in json.loads(found[1])["error"]) == (status, True), found
        connection.close()
    assert infer(connection) == [2, 3]


def test_gateway_keeps_many_connections(service: Service) -> None:
    address = http_address(service)
    with ExitStack() as stack:
        opened = [http.client.HTTPConnection(address, timeout=TIMEOUT_S) for _ in range(200)]
        for connected in opened:
            stack.callback(connected.close)
            connected.connect()
        assert [infer(connected) for connected in opened] == [[2, 3]] * 200


def test_timeout(connection: http.client.HTTPConnection) -> None:
    status, body = send(connection, INFER, json.dumps(REQUEST | {"parameters": {"timeout": 1}}).encode())
    assert (status, "error" in json.loads(body)) == (504, True)


def test_worker_that_dies_is_replaced(service: Service, connection: http.client.HTTPConnection) -> None:
    assert infer(connection) == [2, 3]
    os.kill(service.pid, signal.SIGKILL)
    statuses = set()
    while (status := send(connection, INFER, json.dumps(REQUEST).encode())[0]) != 200:
        statuses.add(status)
    assert statuses <= {503}


def mutated(randomness: random.Random) -> tuple[str, bytes | None, dict[str, str]]:
    """Return a request that may be valid: bytes are changed, cut off or repeated, and fields have other values."""
    content = json.loads(json.dumps(REQUEST))
    values = ["", "x", 0, -1, 2**63, 1e300, None, True, [], {}, [[1], [2, 3]], "FP16", "BYTES", {"binary_data_size": 4}]
    for target in (content, content["inputs"][0]):
        if randomness.random() < 0.5:
            keys = [*target, "parameters", "outputs", "id"]
            target[randomness.choice(keys)] = randomness.choice(values)
    body = bytearray(json.dumps(content).encode())
    for _ in range(randomness.choice([0, 0, 1, 3])):
        start = randomness.randrange(len(body) + 1)
        kind = randomness.randrange(3)
        body[start : start + randomness.randrange(8)] = (b"", randomness.randbytes(4), body[:start])[kind]
    headers = {}
    if randomness.random() < 0.3:
        headers["inference_header_content_length"] = str(randomness.choice([0, 1, len(body), len(body) + 1, "x", "-1"]))
    if randomness.random() < 0.2:
        headers["content_encoding"] = randomness.choice(["gzip", "deflate", "br", ""])
    return randomness.choice(ALL), bytes(body) if randomness.random() < 0.95 else None, headers


@pytest.mark.parametrize("count", [300, pytest.param(100_000, marks=pytest.mark.nightly)])
def test_mutated_requests(service: Service, connection: http.client.HTTPConnection, count: int) -> None:
    worker, admin = service.pid, http_address(service)
    randomness = random.Random(int(os.environ.get("NNHAL_SEED", "1")))
    for number in range(count):
        path, body, headers = mutated(randomness)
        status, answer = send(connection, path, body, **headers)
        assert status in (200, 400, 404, 405, 413, 415, 429), (status, answer, path, body, headers)
        assert status == 200 or json.loads(answer)["error"], (path, body, headers)
        if number % 50 == 0:  # the service goes on
            assert infer(connection) == [2, 3]
    assert (service.pid, http_address(service)) == (worker, admin)


def test_identities(tmp_path: Path) -> None:
    secret, line = create_token("alice")
    (tmp_path / "tokens").write_text(f"{line}\n")
    put(tmp_path / "models/add.tflite", adding(1))
    put(tmp_path / "models/other.tflite", adding(1))
    policy = {"identities": {"token:alice": {"models": ["add"]}}}
    options = (
        "--tokens",
        str(tmp_path / "tokens"),
        "--policy",
        json.dumps(policy),
        "--models",
        str(tmp_path / "models"),
    )
    service = start_service(tmp_path, *options, "--http-listen", "127.0.0.1:0")
    try:
        connection = http.client.HTTPConnection(http_address(service), timeout=TIMEOUT_S)
        body, bearer = json.dumps(REQUEST).encode(), f"Bearer {secret}"
        assert infer(connection, authorization=bearer) == [2, 3]
        assert send(connection, INFER, body)[0] == 401
        assert send(connection, INFER, body, authorization="Bearer wrong")[0] == 401
        assert send(connection, "/v2/models/other/infer", body, authorization=bearer)[0] == 403
        assert send(connection, "/v2/repository/models/add/unload", b"", authorization=bearer)[0] == 403
        index = json.loads(send(connection, "/v2/repository/index", b"", authorization=bearer)[1])
        assert [row["name"] for row in index] == ["add"]
        # only the admin process may say who calls
        forged = {"nnhal_identity_bin": "dG9rZW46YWxpY2U=", "nnhal_peer": "ipv4:127.0.0.1:1", "nnhal_user": "0"}
        assert send(connection, INFER, body, **forged)[0] == 401
        connection.close()
    finally:
        stop_service(service)
