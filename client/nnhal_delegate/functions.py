"""Functions that the library calls, in the order of functions.h: objects are handles, and arrays bytes of int32.

They never raise. Each returns a tuple: 0 and its results, or 1 and a message.
"""

import _thread
import logging
import struct
import sys
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

import numpy as np

from nnhal.errors import HalError
from nnhal.tflite.graph import Operator, SparseDimension
from nnhal_delegate.device import DelegateDevice
from nnhal_delegate.kernel import Kernel
from nnhal_delegate.options import parse_options
from nnhal_delegate.selection import NodeSelection
from nnhal_delegate.tensor_types import tensor_type
from nnhal_ndk.objects import ObjectTable

_log = logging.getLogger("nnhal.delegate")
_OBJECTS = ObjectTable()
_devices: list[DelegateDevice] = []

FUNCTIONS: list[Callable[..., tuple[Any, ...]]] = []
"""The functions in order."""


def _exported(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*arguments: Any) -> tuple[Any, ...]:
        try:
            result = function(*arguments)
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                _thread.interrupt_main()  # the host in Python gets it when the call has returned
            if not isinstance(error, HalError):
                _log.error("%s failed", function.__name__, exc_info=error)
            return 1, str(error).encode()
        return (0, *result) if isinstance(result, tuple) else (0, result)

    FUNCTIONS.append(call)
    return function


def _numbers(data: bytes) -> tuple[int, ...]:
    return struct.unpack(f"{len(data) // 4}i", data)


def _packed(numbers: Sequence[int]) -> bytes:
    return np.array(numbers, np.int32).tobytes()


# ---- Delegates ------------------------------------------------------------------------------------------


@_exported
def create_delegate(texts: bytes) -> int:
    """Connect, and return a delegate. The texts of the options end with zero bytes."""
    parts = texts.decode().split("\0")
    options = parse_options(dict(zip(parts[:-1:2], parts[1::2], strict=True)))
    _configure_log(options.log)
    device = DelegateDevice(options)
    _devices.append(device)
    return _OBJECTS.add(device)


@_exported
def destroy_delegate(delegate: int) -> None:
    """Disconnect a delegate."""
    device = _OBJECTS.remove(delegate, DelegateDevice)
    _devices.remove(device)
    device.close()


def close_delegates() -> None:
    """Disconnect all delegates, at the end of the process."""
    while _devices:
        _devices.pop().close()


def _configure_log(level: str) -> None:
    if not _log.handlers:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("libnnhal_delegate: %(message)s"))
        _log.addHandler(handler)
        _log.propagate = False
    _log.setLevel(level.upper())


# ---- Graphs ---------------------------------------------------------------------------------------------


@_exported
def create_graph(delegate: int) -> int:
    """Return an empty graph."""
    return _OBJECTS.add(NodeSelection(_OBJECTS.get(delegate, DelegateDevice)))


@_exported
def destroy_graph(graph: int) -> None:
    """Free a graph, and kernels that LiteRT has not taken."""
    _OBJECTS.remove(graph, NodeSelection).close()


@_exported
def add_tensor(
    graph: int,
    name: bytes,
    type_: int,
    shape: bytes,
    constant: memoryview | None,
    is_variable: int,
    quantization: int,
    scales: bytes,
    zero_points: bytes,
    dimension: int,
) -> None:
    """Add a tensor to a graph."""
    _OBJECTS.get(graph, NodeSelection).graph.add_tensor(
        name.decode(errors="replace"),
        constant,
        quantization,
        type=tensor_type(type_),
        shape=_numbers(shape),
        scales=struct.unpack(f"{len(scales) // 4}f", scales),
        zero_points=_numbers(zero_points),
        quantized_dimension=dimension,
        is_variable=bool(is_variable),
    )


@_exported
def set_sparsity(graph: int, order: bytes, blocks: bytes) -> None:
    """Make the last tensor a sparse one."""
    _OBJECTS.get(graph, NodeSelection).graph.set_sparsity(_numbers(order), _numbers(blocks))


@_exported
def add_sparse_dimension(graph: int, is_compressed: int, size: int, segments: bytes, indexes: bytes) -> None:
    """Add a dimension to the layout of the last tensor."""
    dimension = SparseDimension(size, _numbers(segments), _numbers(indexes), bool(is_compressed))
    _OBJECTS.get(graph, NodeSelection).graph.add_sparse_dimension(dimension)


@_exported
def add_node(
    graph: int,
    index: int,
    code: int,
    version: int,
    custom_name: bytes,
    inputs: bytes,
    outputs: bytes,
    intermediates: bytes,
    parameters: int,
    custom_options: bytes | None,
) -> None:
    """Add a node to a graph."""
    operator = Operator(
        index,
        code,
        custom_name.decode(errors="replace"),
        _numbers(inputs),
        _numbers(outputs),
        version=version,
        custom_options=custom_options or b"",
        intermediates=_numbers(intermediates),
    )
    _OBJECTS.get(graph, NodeSelection).graph.add_node(operator, parameters)


@_exported
def chosen_nodes(graph: int) -> bytes:
    """Return the nodes that are not refused."""
    return _packed(_OBJECTS.get(graph, NodeSelection).chosen())


@_exported
def examine_partition(graph: int, nodes: bytes, inputs: bytes, outputs: bytes) -> int:
    """Prepare a partition. Return 0 if nodes of it are refused instead."""
    return _OBJECTS.get(graph, NodeSelection).examine(_numbers(nodes), _numbers(inputs), _numbers(outputs))


@_exported
def report_partitions(graph: int) -> None:
    """Log which nodes the device runs."""
    _OBJECTS.get(graph, NodeSelection).report()


# ---- Kernels --------------------------------------------------------------------------------------------


@_exported
def create_kernel(graph: int, nodes: bytes) -> tuple[int, int, bytes]:
    """Return the kernel of a partition, the number of its inputs, and its inputs and outputs."""
    kernel = _OBJECTS.get(graph, NodeSelection).take(_numbers(nodes))
    return _OBJECTS.add(kernel), len(kernel.inputs), _packed((*kernel.inputs, *kernel.outputs))


@_exported
def destroy_kernel(kernel: int) -> None:
    """Free a kernel."""
    _OBJECTS.remove(kernel, Kernel).close()


@_exported
def prepare_kernel(kernel: int, shapes: bytes) -> bytes:
    """Set the shapes of the inputs of a kernel. Return those of its outputs; nothing if they are not known yet.

    A shape is its rank and its dimensions.
    """
    numbers = iter(_numbers(shapes))
    return _packed_shapes(_OBJECTS.get(kernel, Kernel).prepare([tuple(islice(numbers, rank)) for rank in numbers]))


@_exported
def invoke_kernel(kernel: int, buffers: bytes) -> bytes:
    """Run a kernel. Return the shapes of its outputs if it is dynamic."""
    return _packed_shapes(_OBJECTS.get(kernel, Kernel).invoke(buffers))


@_exported
def copy_outputs(kernel: int, buffers: bytes) -> None:
    """Copy the outputs of a dynamic kernel."""
    _OBJECTS.get(kernel, Kernel).copy_outputs(buffers)


def _packed_shapes(shapes: Sequence[Sequence[int]]) -> bytes:
    return _packed([number for shape in shapes for number in (len(shape), *shape)]) if shapes else b""
