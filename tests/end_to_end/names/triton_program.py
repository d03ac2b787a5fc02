"""Program with Triton's client, unmodified, in an environment of its own: its protobuf is older than nnhal's.

It prints what its calls return, as JSON.
"""

import asyncio
import json
import queue
import sys
from types import ModuleType
from typing import Any

import numpy as np
import tritonclient.grpc as triton  # type: ignore[import-not-found]
import tritonclient.grpc.aio as triton_aio  # type: ignore[import-not-found]
import tritonclient.http as triton_http  # type: ignore[import-not-found]
import tritonclient.http.aio as triton_http_aio  # type: ignore[import-not-found]
from tritonclient.utils import InferenceServerException  # type: ignore[import-not-found]
from tritonclient.utils import shared_memory as shm

ADDRESS, HTTP_ADDRESS, MODEL = sys.argv[1:]
SEEN: dict[str, Any] = {}


def request(client: ModuleType, **options: bool) -> Any:
    value = client.InferInput("x", [2], "FP32")
    value.set_data_from_numpy(np.array([1, 2], np.float32), **options)
    return value


def failure(call: Any, *arguments: Any, **options: Any) -> list[str]:
    try:
        call(*arguments, **options)
    except InferenceServerException as error:
        return [str(error.status()), error.message()]
    return []


def use_extensions(module: ModuleType, client: Any) -> dict[str, Any]:
    """Use the extensions that both transports have in the same form, and return what they say."""
    steps = [{"sequence_start": True}, {}, {"sequence_end": True}]
    counted = [client.infer("count", [request(module)], sequence_id=7, **step).as_numpy("y").tolist() for step in steps]
    seen: dict[str, Any] = {
        "sequence": counted,
        "unstarted": failure(client.infer, "count", [request(module)], sequence_id=7),
    }
    region = shm.create_shared_memory_region("tensors", "/nnhal-triton-test", 16)
    try:
        shm.set_shared_memory_region(region, [np.array([1, 2], np.float32)])
        client.register_system_shared_memory("tensors", "/nnhal-triton-test", 16)
        value, output = module.InferInput("x", [2], "FP32"), module.InferRequestedOutput("y")
        value.set_shared_memory("tensors", 8)
        output.set_shared_memory("tensors", 8, offset=8)
        client.infer(MODEL, [value], outputs=[output])
        seen["shared"] = shm.get_contents_as_numpy(region, np.float32, [4]).tolist()
        seen["again"] = failure(client.register_system_shared_memory, "tensors", "/nnhal-triton-test", 16)[1:]
        client.unregister_system_shared_memory("tensors")
        seen["unregistered"] = failure(client.infer, MODEL, [value])[1:]
    finally:
        shm.destroy_shared_memory_region(region)
    seen["missing"] = failure(client.register_system_shared_memory, "tensors", "/nnhal-triton-test", 16)[1:]
    return seen


def use_stream(client: triton.InferenceServerClient) -> None:
    results: queue.SimpleQueue[Any] = queue.SimpleQueue()
    client.start_stream(lambda result, error: results.put(error or result))
    client.async_stream_infer("count", [request(triton)], sequence_id=9, sequence_start=True)
    client.async_stream_infer("other", [request(triton)])
    client.async_stream_infer("count", [request(triton)], sequence_id=9, sequence_end=True)
    first, second, third = (results.get(timeout=60) for _ in range(3))
    client.stop_stream()
    SEEN["stream"] = [first.as_numpy("y").tolist(), second.message(), third.as_numpy("y").tolist()]


def statistics(rows: Any) -> dict[str, Any]:
    (row,) = rows
    return {
        "name": row["name"],
        "version": row["version"],
        "counted": int(row["inference_stats"]["success"]["count"]) > 0,
    }


def use(client: triton.InferenceServerClient) -> None:
    SEEN["health"] = [client.is_server_live(), client.is_server_ready(), client.is_model_ready(MODEL)]
    SEEN["unknown is ready"] = client.is_model_ready("other")
    SEEN["server"] = client.get_server_metadata(as_json=True)
    SEEN["metadata"] = client.get_model_metadata(MODEL, as_json=True)
    SEEN["config"] = client.get_model_config(MODEL, as_json=True)["config"]["name"]
    SEEN["index"] = client.get_model_repository_index(as_json=True)["models"]
    value = request(triton)
    SEEN["infer"] = client.infer(MODEL, [value]).as_numpy("y").tolist()
    outputs = [triton.InferRequestedOutput("y")]
    options: dict[str, Any] = {"request_id": "seven", "priority": 1, "timeout": 10**8, "client_timeout": 100.0}
    result = client.infer(MODEL, [value], "1", outputs, **options)
    response = result.get_response()
    SEEN["options"] = [response.id, response.model_version, result.as_numpy("y").tolist()]
    classes = client.infer(MODEL, [value], outputs=[triton.InferRequestedOutput("y", class_count=1)])
    SEEN["classes"] = [text.decode() for text in classes.as_numpy("y").tolist()]
    results: queue.SimpleQueue[Any] = queue.SimpleQueue()
    client.async_infer(MODEL, [value], lambda result, error: results.put(error or result))
    SEEN["asynchronous"] = results.get(timeout=60).as_numpy("y").tolist()
    compressed = client.infer(MODEL, [value], compression_algorithm="gzip")
    SEEN["compressed"] = compressed.as_numpy("y").tolist()
    SEEN["unknown"] = failure(client.infer, "other", [value])
    SEEN["version"] = failure(client.infer, MODEL, [value], "9")
    wrong = triton.InferInput("x", [3], "FP32")
    wrong.set_data_from_numpy(np.zeros(3, np.float32))
    SEEN["shape"] = failure(client.infer, MODEL, [wrong])
    SEEN["extensions"] = use_extensions(triton, client)
    SEEN["regions"] = client.get_system_shared_memory_status(as_json=True).get("regions", {})
    SEEN["statistics"] = statistics(client.get_inference_statistics(MODEL, "1", as_json=True)["model_stats"])
    use_stream(client)
    client.unload_model(MODEL)
    SEEN["unloaded"] = [client.is_model_ready(MODEL), *failure(client.infer, MODEL, [value])]
    client.load_model(MODEL)
    SEEN["loaded"] = client.is_model_ready(MODEL)


def use_http(client: triton_http.InferenceServerClient) -> None:
    seen = SEEN["http"] = {}
    seen["health"] = [client.is_server_live(), client.is_server_ready(), client.is_model_ready(MODEL, "1")]
    seen["unknown is ready"] = client.is_model_ready("other")
    seen["server"] = client.get_server_metadata()
    seen["metadata"] = client.get_model_metadata(MODEL, "1")
    seen["config"] = client.get_model_config(MODEL)
    seen["index"] = client.get_model_repository_index()
    value, text = request(triton_http), request(triton_http, binary_data=False)
    outputs = [triton_http.InferRequestedOutput("y", binary_data=binary) for binary in (True, False)]
    seen["infer"] = [
        client.infer(MODEL, [tensor], outputs=chosen and [chosen]).as_numpy("y").tolist()
        for tensor in (value, text)
        for chosen in (*outputs, None)
    ]
    ways = [(sent, received) for sent in ("gzip", "deflate", None) for received in ("gzip", "deflate", None)]
    seen["compressed"] = [
        client.infer(MODEL, [value], request_compression_algorithm=sent, response_compression_algorithm=received)
        .as_numpy("y")
        .tolist()
        for sent, received in ways
    ]
    result = client.infer(MODEL, [value], "1", request_id="seven", priority=1, timeout=10**8)
    response = result.get_response()
    seen["options"] = [response["id"], response["model_version"], result.as_numpy("y").tolist()]
    classes = [triton_http.InferRequestedOutput("y", binary_data=binary, class_count=1) for binary in (True, False)]
    texts = [client.infer(MODEL, [value], outputs=[output]).as_numpy("y").tolist()[0] for output in classes]
    seen["classes"] = [text.decode() if isinstance(text, bytes) else text for text in texts]
    seen["asynchronous"] = client.async_infer(MODEL, [value]).get_result().as_numpy("y").tolist()
    seen["unknown"] = failure(client.infer, "other", [value])
    seen["version"] = failure(client.infer, MODEL, [value], "9")
    wrong = triton_http.InferInput("x", [3], "FP32")
    wrong.set_data_from_numpy(np.zeros(3, np.float32))
    seen["shape"] = failure(client.infer, MODEL, [wrong])
    seen["extensions"] = use_extensions(triton_http, client)
    seen["regions"] = client.get_system_shared_memory_status()
    seen["statistics"] = statistics(client.get_inference_statistics(MODEL, "1")["model_stats"])
    client.unload_model(MODEL)
    seen["unloaded"] = [client.is_model_ready(MODEL), *failure(client.infer, MODEL, [value])]
    client.load_model(MODEL)
    seen["loaded"] = client.is_model_ready(MODEL)


async def use_asyncio() -> None:
    async with triton_http_aio.InferenceServerClient(HTTP_ADDRESS) as client:
        SEEN["http"]["asyncio"] = (await client.infer(MODEL, [request(triton_http)])).as_numpy("y").tolist()
    async with triton_aio.InferenceServerClient(ADDRESS) as client:
        SEEN["asyncio"] = (await client.infer(MODEL, [request(triton_aio)])).as_numpy("y").tolist()


with triton.InferenceServerClient(ADDRESS) as connected:
    use(connected)
with triton_http.InferenceServerClient(HTTP_ADDRESS, concurrency=2) as connected:
    use_http(connected)
asyncio.run(use_asyncio())
print(json.dumps(SEEN))
