"""Requests to run models over HTTP: small ones do not wait for the decoding of large ones."""

import asyncio
import json
import threading
from typing import cast

import pytest
from starlette.requests import Request

from nnhal.inference import open_inference_pb2 as messages
from nnhal_service.identity.http_caller import IdentifiedCaller
from nnhal_service.identity.identity import ANONYMOUS
from nnhal_service.operating.web.inference import endpoints
from nnhal_service.operating.web.inference.endpoints import InferenceEndpoints
from nnhal_service.operating.web.inference.json_messages import JsonRequest, read_infer_request
from nnhal_service.operating.web.inference.worker_calls import Call, WorkerCalls

BODY = json.dumps({"inputs": [{"name": "x", "datatype": "FP32", "shape": [1], "data": [1]}]}).encode()
LARGE = BODY + b" " * 2**16


class Worker:
    """Stand-in for `WorkerCalls`, with a worker that returns no outputs."""

    async def call(self, call: Call) -> bytes:
        return messages.ModelInferResponse(model_name="add").SerializeToString()


def test_small_requests_do_not_wait_for_large_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    handler = InferenceEndpoints(
        cast(WorkerCalls, Worker()), lambda caller, **_: IdentifiedCaller(ANONYMOUS, "ipv4:1.2.3.4:5"), 2**20
    )
    read, go, entered = read_infer_request, threading.Event(), list[int]()

    def read_slowly(model: str, version: str, body: bytes, length: int | None) -> JsonRequest:
        if len(body) > len(BODY):
            entered.append(len(body))
            assert go.wait(60)
        return read(model, version, body, length)

    monkeypatch.setattr(endpoints, "read_infer_request", read_slowly)

    async def infer(body: bytes) -> int:
        scope = {"type": "http", "method": "POST", "path": "/", "headers": [], "path_params": {"name": "add"}}
        return (await handler._infer(Request(scope), body)).status_code

    async def run() -> None:
        large = [asyncio.ensure_future(infer(LARGE)) for _ in range(4)]
        while not entered:
            await asyncio.sleep(1e-3)
        assert await infer(BODY) == 200
        assert len(entered) == 1
        go.set()
        assert [await each for each in large] == [200] * 4

    asyncio.run(run())
