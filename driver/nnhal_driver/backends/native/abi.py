"""Structs of `nnhal_backend.h` in ctypes, in the header's order. The header documents their members.

A test compares every offset with the header as a C compiler reads it.
"""

import ctypes as c
from typing import Any, TypeAlias

MAJOR, MINOR = 1, 2
"""NNHAL_BACKEND_MAJOR and NNHAL_BACKEND_MINOR."""

REASON_BYTES = 2048
"""Size of the buffer for a plug-in's reason."""

Fields: TypeAlias = list[tuple[str, Any]]


class Device(c.Structure):
    """NnhalDevice."""

    _fields_ = [("device_type", c.c_int32), ("device_id", c.c_int32)]


class DataType(c.Structure):
    """NnhalDataType."""

    _fields_ = [("code", c.c_uint8), ("bits", c.c_uint8), ("lanes", c.c_uint16)]


class TensorDescription(c.Structure):
    """NnhalTensor."""

    _fields_ = [
        ("data", c.c_void_p),
        ("device", Device),
        ("ndim", c.c_int32),
        ("dtype", DataType),
        ("shape", c.POINTER(c.c_int64)),
        ("strides", c.POINTER(c.c_int64)),
        ("byte_offset", c.c_uint64),
    ]


TensorPointer = c.POINTER(TensorDescription)
Indexes = c.POINTER(c.c_uint32)


# callbacks return the address of a tensor or a subgraph as a number: ctypes cannot return pointers to structs there
GetFunction = c.CFUNCTYPE(c.c_int32, c.c_void_p, c.c_size_t, c.c_int32, Indexes)
PutFunction = c.CFUNCTYPE(c.c_int32, c.c_void_p, c.c_uint32)
BytesFunction = c.CFUNCTYPE(c.c_void_p, c.c_void_p, c.c_uint32)
ClearFunction = c.CFUNCTYPE(None, c.c_void_p)
DeferFunction = c.CFUNCTYPE(c.c_int32, c.c_void_p, c.c_void_p)
CheckFunction = c.CFUNCTYPE(c.c_int32, c.c_void_p)


class Memory(c.Structure):
    """NnhalMemory."""

    _fields_ = [
        ("struct_size", c.c_size_t),
        ("context", c.c_void_p),
        ("mode", c.c_int32),
        ("get", GetFunction),
        ("put", PutFunction),
        ("bytes", BytesFunction),
        ("clear", ClearFunction),
    ]


class Operand(c.Structure):
    """NnhalOperand."""

    _fields_ = [
        ("struct_size", c.c_size_t),
        ("type", c.c_int32),
        ("rank", c.c_uint32),
        ("dimensions", Indexes),
        ("scale", c.c_float),
        ("zero_point", c.c_int32),
        ("channel_count", c.c_uint32),
        ("channel_dim", c.c_uint32),
        ("channel_scales", c.POINTER(c.c_float)),
        ("omitted", c.c_int32),
        ("constant", TensorPointer),
        ("extension", c.c_char_p),
    ]


class Operation(c.Structure):
    """NnhalOperation."""

    _fields_ = [
        ("struct_size", c.c_size_t),
        ("type", c.c_int32),
        ("extension", c.c_char_p),
        ("input_count", c.c_uint32),
        ("inputs", Indexes),
        ("output_count", c.c_uint32),
        ("outputs", Indexes),
    ]


class SubgraphDescription(c.Structure):
    """NnhalSubgraph."""

    _fields_ = [
        ("struct_size", c.c_size_t),
        ("operand_count", c.c_uint32),
        ("operands", c.POINTER(c.POINTER(Operand))),
        ("operation_count", c.c_uint32),
        ("operations", c.POINTER(c.POINTER(Operation))),
        ("input_count", c.c_uint32),
        ("inputs", Indexes),
        ("output_count", c.c_uint32),
        ("outputs", Indexes),
        ("relaxed", c.c_int32),
        ("preference", c.c_int32),
        ("memory", c.POINTER(Memory)),
        ("network", c.c_uint64),
        ("check", CheckFunction),
        ("check_context", c.c_void_p),
    ]


OutputFunction = c.CFUNCTYPE(c.c_void_p, c.c_void_p, c.c_uint32, c.c_int32, c.POINTER(c.c_int64))
SpanFunction = c.CFUNCTYPE(None, c.c_void_p, c.c_char_p, c.c_uint64, c.c_uint64)
OperationSpanFunction = c.CFUNCTYPE(None, c.c_void_p, c.c_char_p, c.c_uint32, c.c_uint64, c.c_uint64)
WriteFunction = c.CFUNCTYPE(c.c_int32, c.c_void_p, c.c_void_p, c.c_size_t)
PartFunction = c.CFUNCTYPE(c.c_void_p, c.c_void_p, c.c_uint32, Indexes)
SubstituteFunction = c.CFUNCTYPE(c.c_int32, c.c_void_p, c.c_void_p, c.c_void_p)
FailFunction = c.CFUNCTYPE(c.c_int32, c.c_void_p, c.c_uint32, c.c_char_p)


class Execution(c.Structure):
    """NnhalExecution."""

    _fields_ = [
        ("struct_size", c.c_size_t),
        ("context", c.c_void_p),
        ("input_count", c.c_uint32),
        ("inputs", c.POINTER(TensorPointer)),
        ("output_count", c.c_uint32),
        ("output", OutputFunction),
        ("check", CheckFunction),
        ("span", SpanFunction),
        ("pieces", c.POINTER(c.c_void_p)),
        ("operation_span", OperationSpanFunction),
        ("defer", DeferFunction),
        ("execution", c.c_uint64),
    ]


class ProfileStruct(c.Structure):
    """NnhalProfile."""

    _fields_ = [("struct_size", c.c_size_t), ("context", c.c_void_p), ("span", SpanFunction)]


AllocateFunction = c.CFUNCTYPE(c.c_void_p, c.c_void_p, c.c_size_t, c.c_size_t)
FreeFunction = c.CFUNCTYPE(None, c.c_void_p, c.c_void_p)


class Allocator(c.Structure):
    """NnhalAllocator."""

    _fields_ = [
        ("struct_size", c.c_size_t),
        ("context", c.c_void_p),
        ("source", c.c_int32),
        ("allocate", AllocateFunction),
        ("free", FreeFunction),
    ]


class Capability(c.Structure):
    """NnhalCapability."""

    _fields_ = [("name", c.c_char_p), ("value", c.c_int32)]


class Sink(c.Structure):
    """NnhalSink."""

    _fields_ = [("struct_size", c.c_size_t), ("context", c.c_void_p), ("write", WriteFunction)]


class Optimization(c.Structure):
    """NnhalOptimization."""

    _fields_ = [
        ("struct_size", c.c_size_t),
        ("context", c.c_void_p),
        ("part", PartFunction),
        ("substitute", SubstituteFunction),
        ("fail", FailFunction),
    ]


GetOptionFunction = c.CFUNCTYPE(c.c_void_p, c.c_void_p, c.c_char_p)
RejectOptionFunction = c.CFUNCTYPE(None, c.c_void_p, c.c_char_p, c.c_char_p)
ExcludeOptionFunction = c.CFUNCTYPE(None, c.c_void_p, c.c_char_p)


class Options(c.Structure):
    """NnhalOptions."""

    _fields_ = [
        ("struct_size", c.c_size_t),
        ("context", c.c_void_p),
        ("get", GetOptionFunction),
        ("reject", RejectOptionFunction),
        ("exclude_from_cache_key", ExcludeOptionFunction),
    ]


class RelayoutStruct(c.Structure):
    """NnhalRelayout."""

    _fields_ = [("operand", c.c_uint32), ("model", c.c_int32), ("own", c.c_int32)]


class OperandTypeStruct(c.Structure):
    """NnhalOperandType."""

    _fields_ = [("type", c.c_uint16), ("is_tensor", c.c_uint16), ("byte_size", c.c_uint32)]


_SELF, _COMPILED, _NETWORK = c.c_void_p, c.c_void_p, c.c_uint64
_REASON = (c.c_char_p, c.c_size_t)
_COUNT = c.POINTER(c.c_size_t)
_SUBGRAPH = c.POINTER(SubgraphDescription)


def _hook(*arguments: Any) -> Any:
    """Return the type of a function without a result."""
    return c.CFUNCTYPE(None, _SELF, *arguments)


def _status(*arguments: Any) -> Any:
    """Return the type of a function that returns a status, or whether it agrees, and may write a reason."""
    return c.CFUNCTYPE(c.c_int32, _SELF, *arguments, *_REASON)


REQUIRED: Fields = [
    ("destroy", _hook()),
    ("supports", _status(_SUBGRAPH)),
    ("compile", _status(_SUBGRAPH, c.POINTER(_COMPILED))),
    ("execute", _status(_COMPILED, c.POINTER(Execution))),
    ("release", _hook(_COMPILED)),
]
"""Functions that every backend must have."""

OPTIONAL: Fields = [
    ("capabilities", c.CFUNCTYPE(c.POINTER(Capability), _SELF, _COUNT)),
    ("performance", _hook(c.POINTER(c.c_float), c.POINTER(c.c_float))),
    ("extensions", c.CFUNCTYPE(c.POINTER(c.c_char_p), _SELF, _COUNT)),
    ("save", _status(_COMPILED, c.POINTER(Sink))),
    ("load", _status(_SUBGRAPH, c.c_void_p, c.c_size_t, c.POINTER(_COMPILED))),
    ("allocate_buffer", c.CFUNCTYPE(c.c_void_p, _SELF, c.c_size_t)),
    ("free_buffer", _hook(c.c_void_p, c.c_size_t)),
    ("before_load", _hook(_NETWORK)),
    ("after_load", _hook(_NETWORK, _COMPILED)),
    ("before_unload", _hook(_NETWORK, _COMPILED)),
    ("after_unload", _hook(_NETWORK)),
    ("resize_begin", _hook(_COMPILED)),
    ("resize", _status(_COMPILED, c.c_uint32, c.POINTER(TensorPointer))),
    ("resize_end", _hook(_COMPILED)),
    ("execute_begin", _hook(_COMPILED)),
    ("execute_end", _hook(_COMPILED)),
    ("wait_finish", _status(_COMPILED)),
    ("optimize", _status(_SUBGRAPH, c.POINTER(Optimization))),
    ("layouts", c.CFUNCTYPE(c.POINTER(RelayoutStruct), _SELF, _COMPILED, _COUNT)),
    ("operand_types", c.CFUNCTYPE(c.POINTER(OperandTypeStruct), _SELF, c.c_char_p, _COUNT)),
    ("before_load_network", _hook(_NETWORK)),
    ("after_load_network", _hook(_NETWORK)),
    ("before_unload_network", _hook(_NETWORK)),
    ("after_unload_network", _hook(_NETWORK)),
    ("use_allocator", _status(c.POINTER(Allocator))),
    ("profiling_begin", _hook(c.c_uint64)),
    ("profiling_end", _hook(c.c_uint64, c.POINTER(ProfileStruct))),
    ("device_type", c.CFUNCTYPE(c.c_int32, _SELF)),
    ("wait_deferred", _status(_COMPILED, c.c_void_p)),
    ("device_operands", c.CFUNCTYPE(Indexes, _SELF, _COMPILED, _COUNT)),
    ("acquire_buffer", c.CFUNCTYPE(c.c_void_p, _SELF, TensorPointer)),
    ("release_buffer", _hook(c.c_void_p)),
    ("copy_buffer", _status(TensorPointer, TensorPointer)),
    ("block_allocated", _hook(_COMPILED, c.c_void_p, c.c_size_t)),
]
"""Functions that a backend may have. The header documents their defaults."""

HEAD: Fields = [
    ("struct_size", c.c_size_t),
    ("major", c.c_uint32),
    ("minor", c.c_uint32),
    ("state", c.c_void_p),
    ("version", c.c_char_p),
]


class BackendTable(c.Structure):
    """NnhalBackend."""

    _fields_ = [*HEAD, *REQUIRED, *OPTIONAL]
