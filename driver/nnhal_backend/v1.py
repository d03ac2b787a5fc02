"""Major version 1 of the backend interface: every name that a backend may import.

A plug-in needs nothing else from nnhal:

    from nnhal_backend.v1 import API_VERSION, Backend, CompiledSubgraph, Support

Version rules:

- A plug-in returns the `API_VERSION` that it was written for from `GetVersion`, as (major, minor).
- A new minor version only adds names, or members with a default. A plug-in for 1.0 runs on a host with 1.1.
- A host rejects a plug-in for a later minor version, or for another major version.
- Names are not removed, and their meaning does not change, within a major version. The next major version is a module
  `nnhal_backend.v2` beside this one.
- `API_VERSION` in `nnhal_driver.backends.api` lists what each minor version added.
"""

from nnhal.errors import HalError
from nnhal.operations import Arguments
from nnhal.types import (
    DTYPES,
    AnyArray,
    Bytes,
    DeviceType,
    ErrorStatus,
    ExecutionPreference,
    Extension,
    ExtensionOperandTypeInformation,
    ExtensionParams,
    FusedActivationFunc,
    Operand,
    OperandLifeTime,
    OperandType,
    Operation,
    OperationType,
    PerformanceInfo,
    Subgraph,
    SymmPerChannelQuantParams,
    byte_size,
    is_extension,
    is_tensor,
    operation_name,
    type_name,
)
from nnhal_driver.backends.allocators import CustomAllocator, MemorySource, allocate_with
from nnhal_driver.backends.api import (
    API_VERSION,
    Backend,
    CompiledSubgraph,
    CompileOptions,
    Graph,
    OperationView,
    OptimizedSubgraph,
    Output,
    Profile,
    ProfilingContext,
    Run,
    Sections,
    SubgraphView,
    Substitution,
    Support,
)
from nnhal_driver.backends.device_memory import DeviceBuffer, DeviceMemory
from nnhal_driver.backends.layout import PACK, Layout, Relayout
from nnhal_driver.backends.memory import MemoryManager, MemoryMode, Piece, Storage
from nnhal_driver.backends.options import BackendOptions, OptionError, PowerMode, Precision
from nnhal_driver.backends.per_operation import Creator, PerOperationBackend, ShapeFunction, Workload, WorkloadFactory
from nnhal_driver.operations import infer
from nnhal_driver.operations.call import OperationCall, Shape

__all__ = [
    "API_VERSION",
    "DTYPES",
    "PACK",
    "AnyArray",
    "Arguments",
    "Backend",
    "BackendOptions",
    "Bytes",
    "CompileOptions",
    "CompiledSubgraph",
    "Creator",
    "CustomAllocator",
    "DeviceBuffer",
    "DeviceMemory",
    "DeviceType",
    "ErrorStatus",
    "ExecutionPreference",
    "Extension",
    "ExtensionOperandTypeInformation",
    "ExtensionParams",
    "FusedActivationFunc",
    "Graph",
    "HalError",
    "Layout",
    "MemoryManager",
    "MemoryMode",
    "MemorySource",
    "Operand",
    "OperandLifeTime",
    "OperandType",
    "Operation",
    "OperationCall",
    "OperationType",
    "OperationView",
    "OptimizedSubgraph",
    "OptionError",
    "Output",
    "PerOperationBackend",
    "PerformanceInfo",
    "Piece",
    "PowerMode",
    "Precision",
    "Profile",
    "ProfilingContext",
    "Relayout",
    "Run",
    "Sections",
    "Shape",
    "ShapeFunction",
    "Storage",
    "Subgraph",
    "SubgraphView",
    "Substitution",
    "Support",
    "SymmPerChannelQuantParams",
    "Workload",
    "WorkloadFactory",
    "allocate_with",
    "byte_size",
    "infer",
    "is_extension",
    "is_tensor",
    "operation_name",
    "type_name",
]
