"""nnhal: the Android NNAPI driver interface (AIDL version 4) as a network service. Clients import this package.

    import nnhal

    with nnhal.load("model.tflite", "localhost:50051") as model:  # without an address, a service starts
        print(model.inputs, model.outputs)
        outputs = model(image)  # or model(image=image); a tuple of arrays, and a mapping: outputs["scores"]

`nnhal.connect` returns a device, whose `prepare` returns models: many of them, with bursts, buffers and fences.
`nnhal.aio` is the same for asyncio, `nnhal.tflite` imports files, and `nnhal.ModelBuilder` builds models.

Importing is lazy: `nnhal.types` and `nnhal.operations` load without grpc, and `nnhal.connect` loads it.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nnhal import aio, tflite, types
    from nnhal.builder import ModelBuilder
    from nnhal.client.core.arrays import TensorInfo
    from nnhal.client.replicas.sync.fleet import Fleet
    from nnhal.client.replicas.sync.replicated_model import ReplicatedModel
    from nnhal.client.sync.buffer import Buffer
    from nnhal.client.sync.device import Device, PartitionedModel, Preparation, PreparedModel, connect, load
    from nnhal.enums import (
        BackendState,
        CacheState,
        DeviceType,
        ErrorKind,
        ErrorStatus,
        ExecutionPreference,
        FenceState,
        FusedActivationFunc,
        OperandType,
        OperationType,
        Priority,
    )
    from nnhal.errors import DeadObjectError, HalError, SessionLostError
    from nnhal.types import BackendInfo, Model, Operand
    from nnhal.version import __version__

__all__ = [
    "BackendInfo",
    "BackendState",
    "Buffer",
    "CacheState",
    "DeadObjectError",
    "Device",
    "DeviceType",
    "ErrorKind",
    "ErrorStatus",
    "ExecutionPreference",
    "FenceState",
    "Fleet",
    "FusedActivationFunc",
    "HalError",
    "Model",
    "ModelBuilder",
    "Operand",
    "OperandType",
    "OperationType",
    "PartitionedModel",
    "Preparation",
    "PreparedModel",
    "Priority",
    "ReplicatedModel",
    "SessionLostError",
    "TensorInfo",
    "__version__",
    "aio",
    "connect",
    "load",
    "tflite",
    "types",
]

_SUBMODULES = {"aio", "tflite", "types"}
_NAMES = {
    "nnhal.builder": ("ModelBuilder",),
    "nnhal.client.core.arrays": ("TensorInfo",),
    "nnhal.client.replicas.sync.fleet": ("Fleet",),
    "nnhal.client.replicas.sync.replicated_model": ("ReplicatedModel",),
    "nnhal.client.sync.buffer": ("Buffer",),
    "nnhal.client.sync.device": ("Device", "PartitionedModel", "Preparation", "PreparedModel", "connect", "load"),
    "nnhal.errors": ("DeadObjectError", "HalError", "SessionLostError"),
    "nnhal.types": ("BackendInfo", "Model", "Operand"),
    "nnhal.version": ("__version__",),
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names}
"""Module of each public name, apart from submodules and enumerations."""


def __getattr__(name: str) -> object:
    """Import a public name on first use."""
    if name not in __all__:
        raise AttributeError(f"module 'nnhal' has no attribute {name!r}")
    if name in _SUBMODULES:
        return importlib.import_module(f"nnhal.{name}")
    return getattr(importlib.import_module(_MODULES.get(name, "nnhal.enums")), name)


def __dir__() -> list[str]:
    return __all__
