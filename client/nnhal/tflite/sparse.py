"""Dense values of sparse constants."""

from dataclasses import replace
from math import prod

import numpy as np

from nnhal.tflite.errors import TfliteError
from nnhal.tflite.graph import Sparsity, Tensor, TfliteGraph
from nnhal.tflite.memory import reserve
from nnhal.types import AnyArray

_MAX_ELEMENTS = 2**29
_MORE_COPIES = 4
"""Numbers for each node of a level besides its coordinates."""


def densify_constants(graph: TfliteGraph) -> TfliteGraph:
    """Return the graph with dense values in place of sparse constants.

    Raises:
        TfliteError: the layout of a sparse constant is inconsistent.
    """
    tensors = list(graph.tensors)
    for tensor in graph.tensors:
        if tensor.sparsity is not None:
            tensors[tensor.index] = replace(tensor, folded=_dense(graph, tensor, tensor.sparsity), sparsity=None)
    return replace(graph, tensors=tuple(tensors))


def _dense(graph: TfliteGraph, tensor: Tensor, sparsity: Sparsity) -> AnyArray:
    if tensor.data is None:
        raise TfliteError(f"{tensor} is sparse, but not a constant")
    if not 0 < prod(tensor.shape) <= _MAX_ELEMENTS or min(tensor.shape) < 1:
        raise TfliteError(f"{tensor} is sparse with shape {list(tensor.shape)}")
    stored = graph.stored_values(tensor)
    try:
        return _scatter(tensor.shape, sparsity, stored)
    except (IndexError, ValueError, OverflowError) as error:
        raise TfliteError(f"{tensor} has an inconsistent sparse layout: {error}") from None


def _scatter(shape: tuple[int, ...], sparsity: Sparsity, stored: AnyArray) -> AnyArray:
    """Return the dense array: walk the levels of the layout, from the outermost to the innermost."""
    rank, levels = len(shape), len(sparsity.order)
    if levels != rank + len(sparsity.blocks) or levels != len(sparsity.dimensions):
        raise ValueError(f"{levels} levels for rank {rank} and {len(sparsity.blocks)} blocks")
    if sorted(sparsity.order) != list(range(levels)) or any(not 0 <= b < rank for b in sparsity.blocks):
        raise ValueError(f"traversal order {list(sparsity.order)} and blocks {list(sparsity.blocks)}")
    nodes = np.zeros(1, np.int64)
    coordinates: dict[int, AnyArray] = {}
    for dimension, level in zip(sparsity.order, sparsity.dimensions, strict=True):
        if level.is_compressed:
            segments, indexes = np.array(level.segments, np.int64), np.array(level.indexes, np.int64)
            starts, counts = segments[nodes], segments[nodes + 1] - segments[nodes]
        else:
            starts, counts = nodes * level.size, np.full(nodes.size, level.size)
        if np.any(counts < 0) or counts.sum() > _MAX_ELEMENTS:
            raise ValueError("segments that decrease or overlap")
        reserve(int(counts.sum()) * (rank + _MORE_COPIES) * nodes.itemsize)
        parents = np.repeat(np.arange(nodes.size), counts)
        position = np.arange(parents.size) - np.repeat(np.cumsum(counts) - counts, counts)
        nodes = np.repeat(starts, counts) + position
        coordinates = {key: value[parents] for key, value in coordinates.items()}
        coordinates[dimension] = indexes[nodes] if level.is_compressed else position
    places = [coordinates[i] for i in range(rank)]
    for i, blocked in enumerate(sparsity.blocks):
        size = sparsity.dimensions[sparsity.order.index(rank + i)].size
        places[blocked] = places[blocked] * size + coordinates[rank + i]
    if any(p.min(initial=0) < 0 for p in places):
        raise ValueError("a negative index")
    reserve(prod(shape) * stored.itemsize)
    dense = np.zeros(shape, stored.dtype)
    dense[tuple(places)] = stored[nodes]
    return dense
