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
from tritonclient.utils import InferenceServerException  # type: ignore[import-not-found]

ADDRESS, MODEL = sys.argv[1:]
SEEN: dict[str, Any] = {}


def request(client: ModuleType) -> Any:
    value = client.InferInput("x", [2], "FP32")
    value.set_data_from_numpy(np.array([1, 2], np.float32))
    return value


def failure(call: Any, *arguments: Any, **options: Any) -> list[str]:
    try:
        call(*arguments, **options)
    except InferenceServerException as error:
        return [str(error.status()), error.message()]
    return []


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
    client.unload_model(MODEL)
    SEEN["unloaded"] = [client.is_model_ready(MODEL), *failure(client.infer, MODEL, [value])]
    client.load_model(MODEL)
    SEEN["loaded"] = client.is_model_ready(MODEL)


async def use_asyncio() -> None:
    async with triton_aio.InferenceServerClient(ADDRESS) as client:
        SEEN["asyncio"] = (await client.infer(MODEL, [request(triton_aio)])).as_numpy("y").tolist()


with triton.InferenceServerClient(ADDRESS) as connected:
    use(connected)
asyncio.run(use_asyncio())
print(json.dumps(SEEN))
