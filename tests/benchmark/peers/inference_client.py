"""Client process for servers of the Open Inference Protocol, with Triton's client library.

It runs in the environment of Triton. Its lines are those of `nnhal_tools.bench.client_process`.
"""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import tritonclient.grpc as triton  # type: ignore[import-not-found]

from nnhal_tools.bench import client_process
from nnhal_tools.bench.paths import PATHS
from nnhal_tools.bench.specification import ClientTask
from tests.benchmark.peers.model_description import DATATYPES

MODEL = "model"
SHARED = "inference-shared-memory"
"""Path with the tensors in System V shared memory, which Triton calls system shared memory."""
UNARY = "inference"
_LOAD_S = 60

Arrays = Sequence["np.ndarray[Any, np.dtype[Any]]"]


def _tensors(client: triton.InferenceServerClient, arrays: Arrays) -> tuple[list[triton.InferInput], str]:
    """Return the inputs of the model, without values, and the name of its first output. MLServer does not know them."""
    metadata = client.get_model_metadata(MODEL)
    names = [tensor.name for tensor in metadata.inputs] or [f"input_{i}" for i in range(len(arrays))]
    inputs = [
        triton.InferInput(name, list(array.shape), DATATYPES[array.dtype.name])
        for name, array in zip(names, arrays, strict=True)
    ]
    return inputs, metadata.outputs[0].name if metadata.outputs else "output_0"


@contextmanager
def _connect(address: str) -> Iterator[triton.InferenceServerClient]:
    """Connect to a server, and wait until it has loaded the model."""
    with triton.InferenceServerClient(address) as client:
        end = time.monotonic() + _LOAD_S
        while not _is_ready(client):
            if time.monotonic() > end:
                raise OSError(f"the server at {address} has not loaded the model in {_LOAD_S} s")
            time.sleep(0.1)
        yield client


def _is_ready(client: triton.InferenceServerClient) -> bool:
    try:
        return bool(client.is_model_ready(MODEL))
    except triton.InferenceServerException:
        return False


@contextmanager
def open_unary(task: ClientTask, arrays: Arrays) -> Iterator[Callable[[bool], None]]:
    """Send tensors inside the messages."""
    with _connect(task.subject.target) as client:
        inputs, output = _tensors(client, arrays)

        def call(measure: bool) -> None:
            for tensor, array in zip(inputs, arrays, strict=True):
                tensor.set_data_from_numpy(array)
            client.infer(MODEL, inputs).as_numpy(output)

        yield call


@contextmanager
def open_shared(task: ClientTask, arrays: Arrays) -> Iterator[Callable[[bool], None]]:
    """Send tensors through shared memory. The client copies its inputs there in each call, and its output back."""
    from tritonclient.utils import shared_memory  # type: ignore[import-not-found]

    output_bytes = int(os.environ["PEER_OUTPUT_BYTES"])
    name = f"nnhal-peer-{os.getpid()}"
    size = sum(array.nbytes for array in arrays)
    with _connect(task.subject.target) as client:
        region = shared_memory.create_shared_memory_region(name, f"/{name}", size + output_bytes)
        try:
            client.register_system_shared_memory(name, f"/{name}", size + output_bytes)
            (inputs, name_of_output), offset = _tensors(client, arrays), 0
            for tensor, array in zip(inputs, arrays, strict=True):
                tensor.set_shared_memory(name, array.nbytes, offset)
                offset += array.nbytes
            output = triton.InferRequestedOutput(name_of_output)
            output.set_shared_memory(name, output_bytes, size)

            def call(measure: bool) -> None:
                shared_memory.set_shared_memory_region(region, list(arrays))
                client.infer(MODEL, inputs, outputs=[output])
                shared_memory.get_contents_as_numpy(region, np.uint8, [output_bytes], size).copy()

            yield call
            client.unregister_system_shared_memory(name)
        finally:
            shared_memory.destroy_shared_memory_region(region)


if __name__ == "__main__":
    PATHS.update({UNARY: open_unary, SHARED: open_shared})
    client_process.main()
