"""Files with other declared shapes: LiteRT computes those of all tensors but inputs, constants and states."""

from collections.abc import Callable
from typing import Any

from tests.nnhal.tflite.build import pack, unpack


def _absent(tensor: Any) -> None:
    tensor.shape, tensor.shapeSignature = None, None


def _unknown(tensor: Any) -> None:
    rank = len(_shape(tensor))
    tensor.shape, tensor.shapeSignature = [1] * rank, [-1] * rank


def _wrong_lengths(tensor: Any) -> None:
    tensor.shape, tensor.shapeSignature = [int(length) + 3 for length in _shape(tensor)], None


def _wrong_rank(tensor: Any) -> None:
    tensor.shape, tensor.shapeSignature = [2, *_shape(tensor), 5], None


def _shape(tensor: Any) -> list[int]:
    return [] if tensor.shape is None else list(tensor.shape)


DECLARATIONS: dict[str, Callable[[Any], None]] = {
    "absent": _absent,
    "unknown": _unknown,
    "wrong lengths": _wrong_lengths,
    "wrong rank": _wrong_rank,
}
"""Functions that change what a tensor declares."""


def declare(data: bytes, declaration: str) -> bytes:
    """Return a model whose tensors declare other shapes, except inputs of the main subgraph, constants and states."""
    model = unpack(data)
    for number, graph in enumerate(model.subgraphs):
        inputs = () if number else tuple(graph.inputs)
        for index, tensor in enumerate(graph.tensors):
            is_constant = model.buffers[tensor.buffer].data is not None
            if index not in inputs and not is_constant and not tensor.isVariable:
                DECLARATIONS[declaration](tensor)
    return pack(model)
