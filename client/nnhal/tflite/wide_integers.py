"""Tensors of int64 whose values TENSOR_INT32 may not hold. NNAPI has no int64, so their operators run in regions."""

from nnhal.tflite.graph import Operator, TfliteGraph
from nnhal.tflite_schema import BuiltinOperator, TensorType

_COUNTS = frozenset(
    {
        BuiltinOperator.ARG_MAX,
        BuiltinOperator.ARG_MIN,
        BuiltinOperator.RANK,
        BuiltinOperator.SHAPE,
        BuiltinOperator.TOPK_V2,
        BuiltinOperator.WHERE,
    }
)
"""Operators whose results are positions or counts."""
_MOVEMENTS = frozenset(
    {
        BuiltinOperator.BATCH_TO_SPACE_ND,
        BuiltinOperator.BROADCAST_TO,
        BuiltinOperator.CONCATENATION,
        BuiltinOperator.DEPTH_TO_SPACE,
        BuiltinOperator.EXPAND_DIMS,
        BuiltinOperator.FILL,
        BuiltinOperator.GATHER,
        BuiltinOperator.GATHER_ND,
        BuiltinOperator.MAXIMUM,
        BuiltinOperator.MINIMUM,
        BuiltinOperator.MIRROR_PAD,
        BuiltinOperator.ONE_HOT,
        BuiltinOperator.PACK,
        BuiltinOperator.PAD,
        BuiltinOperator.PADV2,
        BuiltinOperator.REDUCE_MAX,
        BuiltinOperator.REDUCE_MIN,
        BuiltinOperator.RESHAPE,
        BuiltinOperator.REVERSE_SEQUENCE,
        BuiltinOperator.REVERSE_V2,
        BuiltinOperator.SELECT,
        BuiltinOperator.SELECT_V2,
        BuiltinOperator.SLICE,
        BuiltinOperator.SPACE_TO_BATCH_ND,
        BuiltinOperator.SPACE_TO_DEPTH,
        BuiltinOperator.SPLIT,
        BuiltinOperator.SPLIT_V,
        BuiltinOperator.SQUEEZE,
        BuiltinOperator.STRIDED_SLICE,
        BuiltinOperator.TILE,
        BuiltinOperator.TRANSPOSE,
        BuiltinOperator.UNPACK,
    }
)
"""Operators whose results are among the elements of their inputs."""
_NARROW = frozenset(
    {TensorType.INT8, TensorType.UINT8, TensorType.INT16, TensorType.UINT16, TensorType.INT32, TensorType.BOOL}
)


def wide_tensors(graph: TfliteGraph) -> frozenset[int]:
    """Return the tensors of int64 that may exceed 32 bits.

    An input of the graph is not wide: as TENSOR_INT32 it has the values that the caller can pass.
    """
    wide: set[int] = set()
    for operator in graph.operators:
        outputs = [index for index in operator.outputs if graph.tensors[index].type == TensorType.INT64]
        if outputs and not _is_narrow(graph, operator, wide):
            wide.update(outputs)
    return frozenset(wide)


def _is_narrow(graph: TfliteGraph, operator: Operator, wide: set[int]) -> bool:
    inputs = [index for index in operator.inputs if index >= 0]
    if operator.code in _COUNTS:
        return True
    if operator.code == BuiltinOperator.CAST:
        return graph.tensors[inputs[0]].type in _NARROW
    return operator.code in _MOVEMENTS and wide.isdisjoint(inputs)
