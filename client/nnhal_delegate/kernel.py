"""Kernel of a delegate: nodes of a graph that run as one model on the device."""

import ctypes
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

import numpy as np

import nnhal
from nnhal.client.sync.burst import Burst
from nnhal.errors import HalError, invalid_argument
from nnhal.tflite.graph import TENSOR_DTYPES, Tensor, TfliteGraph
from nnhal.types import AnyArray
from nnhal_delegate.device import DelegateDevice, RefusedNodes

Shape = tuple[int, ...]


class Kernel:
    """Nodes of a graph, prepared for the device. It belongs to one interpreter, and so to one thread at a time.

    Attributes:
        inputs, outputs: the tensors that LiteRT passes, by their numbers.

    Raises:
        RefusedNodes: nodes are not supported.
        HalError: the device is gone.
    """

    def __init__(self, device: DelegateDevice, graph: TfliteGraph) -> None:
        self._device = device
        self._graph = graph
        self.inputs, self.outputs = graph.inputs, graph.outputs
        self._shapes: Sequence[Shape] = [graph.tensors[index].shape for index in graph.inputs]
        self._program = device.compile(graph, {})
        self._burst: Burst | None = None
        self._is_dynamic = False
        self._buffers = b""
        self._views: list[AnyArray] = []
        self._targets: list[AnyArray] = []
        self._results: Sequence[AnyArray] = ()

    # ---- Shapes ----------------------------------------------------------------------------------------

    def prepare(self, shapes: Sequence[Shape]) -> Sequence[Shape]:
        """Set the shapes of the inputs.

        Returns:
            The shapes of the outputs; nothing if they are known only when the kernel has run.

        Raises:
            HalError: the device does not support the shapes, or is gone.
        """
        if list(shapes) != list(self._shapes):
            self._compile(shapes)
        self._buffers = b""
        known = [shape for shape in self._program.output_shapes if shape and 0 not in shape]
        self._is_dynamic = len(known) < len(self.outputs)
        return [] if self._is_dynamic else [self._host_shape(i, shape) for i, shape in enumerate(known)]

    def _compile(self, shapes: Sequence[Shape]) -> None:
        tensors, named = list(self._graph.tensors), {}
        for index, shape in zip(self.inputs, shapes, strict=True):
            if len(shape) == len(tensors[index].shape):
                named[tensors[index].name] = shape
            else:
                tensors[index] = replace(tensors[index], shape=shape)
        try:
            program = self._device.compile(replace(self._graph, tensors=tuple(tensors)), named)
        except RefusedNodes as refusal:
            node, reason = next(iter(refusal.reasons.items()))
            raise invalid_argument(f"node {node} cannot run with these shapes: {reason}") from None
        self.close()
        self._program, self._shapes = program, shapes

    def _host_shape(self, position: int, shape: Shape) -> Shape:
        """Return the shape of an output in LiteRT, which has tensors of rank 0."""
        return () if position in self._program.scalars else shape

    # ---- Executions ------------------------------------------------------------------------------------

    def invoke(self, buffers: bytes) -> Sequence[Shape]:
        """Run the nodes.

        Args:
            buffers: address and number of bytes of each input and output. Those of the outputs of a dynamic kernel do
                not count: see `copy_outputs`.

        Returns:
            The shapes of the outputs of a dynamic kernel.

        Raises:
            HalError: the execution failed.
        """
        if buffers != self._buffers:
            self._bind(buffers)
        results = self._execute()
        if not self._is_dynamic:
            self._copy(results)
            return ()
        self._results = [result.copy() for result in results]
        return [self._host_shape(i, result.shape) for i, result in enumerate(results)]

    def copy_outputs(self, buffers: bytes) -> None:
        """Copy the outputs of a dynamic kernel, when LiteRT has memory for them."""
        self._bind(buffers)
        self._copy(self._results)
        self._results = ()

    def _bind(self, buffers: bytes) -> None:
        """Make views of the memory of inputs and outputs, which mostly stays the same."""
        places = np.frombuffer(buffers, np.uint64).reshape(-1, 2).tolist()
        tensors = (self._graph.tensors[index] for index in (*self.inputs, *self.outputs))
        views = [_view(tensor, *place) for tensor, place in zip(tensors, places, strict=True)]
        self._views = [view.reshape(shape or (1,)) for view, shape in zip(views, self._shapes, strict=False)]
        self._targets = views[len(self.inputs) :]
        self._buffers = buffers

    def _execute(self) -> Sequence[AnyArray]:
        try:
            prepared, options = self._program.prepared, self._device.options
            inputs = [_as_operand(view, info) for view, info in zip(self._views, prepared.inputs, strict=True)]
            if options.profile is not None:
                return self._device.record(prepared.profile(inputs, deadline=options.deadline))
            if self._burst is None:
                self._burst = prepared.burst()
            return self._burst.execute(inputs, deadline=options.deadline, copy=False)
        except HalError as error:
            program = self._device.replacement(self._program, error)
            self.close()
            self._program = program
            return self._execute()

    def _copy(self, results: Sequence[AnyArray]) -> None:
        for index, target, result in zip(self.outputs, self._targets, results, strict=True):
            if target.size != result.size:
                raise invalid_argument(f"{self._graph.tensors[index]} has shape {list(result.shape)} on the device")
            np.copyto(target, result.reshape(-1), casting="unsafe")  # int64 is int32 on the device

    def close(self) -> None:
        """Free what it has on the device."""
        burst, self._burst = self._burst, None
        with suppress(HalError):
            if burst is not None:
                burst.close()
            self._program.prepared.close()


def _view(tensor: Tensor, address: int, size: int) -> AnyArray:
    """Return the elements of a tensor in LiteRT's memory, of rank 1."""
    memory = memoryview((ctypes.c_char * size).from_address(address))
    return np.frombuffer(memory, TENSOR_DTYPES[tensor.type])


def _as_operand(view: AnyArray, info: nnhal.TensorInfo) -> AnyArray:
    """Return an input with the type of the operand.

    Raises:
        HalError: INVALID_ARGUMENT: a value of int64 does not fit into the int32 of the device.
    """
    if view.dtype == info.dtype:
        return view
    narrow = view.astype(info.dtype)
    if not np.array_equal(narrow, view):
        raise invalid_argument(f"input {info.name!r} has values that {info.dtype}, its type on the device, cannot hold")
    return narrow
