"""The client for asyncio.

import nnhal

async with nnhal.aio.connect("localhost:50051") as device:
    prepared = await device.prepare("model.tflite")
    outputs = await prepared.execute([image])

A device, and what is prepared on it, belong to the event loop in which it was connected. Cancelling a task that waits
for a call cancels the call: the service abandons the preparation or the execution. Properties of the synchronous device
are methods here.
"""

from nnhal.client.aio.device import Buffer, Device, Inputs, Outputs, PartitionedModel, PreparedModel, connect, load
from nnhal.client.replicas.aio.fleet import Fleet
from nnhal.client.replicas.aio.replicated_model import ReplicatedModel

__all__ = [
    "Buffer",
    "Device",
    "Fleet",
    "Inputs",
    "Outputs",
    "PartitionedModel",
    "PreparedModel",
    "ReplicatedModel",
    "connect",
    "load",
]


def __dir__() -> list[str]:
    return __all__
