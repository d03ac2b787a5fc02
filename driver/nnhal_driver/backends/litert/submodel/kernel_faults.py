"""Operators for which LiteRT's kernels give wrong results without an error, write out of bounds, or do not end."""

from collections.abc import Callable, Mapping

from nnhal_driver.backends.litert.submodel.model import (
    InvalidSubModel,
    SubModel,
    SubModelGraph,
    SubModelOperator,
    operator_path,
)


def max_depthwise_channels(type_: str) -> int:
    """Return the most output channels of a depthwise convolution that LiteRT's own kernel computes.

    It computes as many output positions at a time as its buffer has room for. With more channels there is no room, and
    the kernel loops for ever. XNNPACK computes any number of channels, but only with constant weights and a constant
    bias.

    Args:
        type_: the engine's type of the filter.
    """
    return 4832 if type_ in ("FLOAT32", "FLOAT16") else 2048


def check_kernels(model: SubModel) -> None:
    """Check that no operator has a faulty kernel.

    Raises:
        InvalidSubModel: one has. The message names it.
    """
    for number, graph in enumerate(model.graphs):
        for index, operator in enumerate(graph.operators):
            check = _FAULTS.get(operator.kind)
            if check is not None and (fault := check(graph, operator)):
                raise InvalidSubModel(f"{operator_path(number, index, operator.kind)}: {fault}")


def _depthwise_fault(graph: SubModelGraph, operator: SubModelOperator) -> str:
    """Return the fault if only the weights are quantized: the kernel reads a scale for each channel."""
    image, weights, *bias = (*graph.inputs_of(operator), None, None)
    if image is None or weights is None or not weights.shape:
        return ""
    channels, limit = weights.shape[-1], max_depthwise_channels(weights.type)
    is_constant = weights.data is not None and bias[0] is not None and bias[0].data is not None
    if channels > limit and not (is_constant and image.type == weights.type):
        return f"the filter has {channels} channels; expected at most {limit}, or a constant filter and bias"
    found = len(weights.quantization.scales) if weights.quantization is not None else channels
    if image.type == "FLOAT32" and found != channels:
        return f"input 1 has {found} scales; expected one for each of the {channels} channels"
    return ""


def _lstm_fault(graph: SubModelGraph, operator: SubModelOperator) -> str:
    is_partly_written = operator.options.get("merge_outputs") and not operator.options.get("time_major")
    return (
        "merge_outputs is set without time_major; the kernel does not write all elements" if is_partly_written else ""
    )


def _rnn_fault(graph: SubModelGraph, operator: SubModelOperator) -> str:
    inputs = graph.inputs_of(operator)[:8]
    is_hybrid = any(tensor is not None and tensor.type != "FLOAT32" for tensor in inputs)
    return "the weights are quantized; the kernel writes out of bounds" if is_hybrid else ""


def _diagonal_fault(graph: SubModelGraph, operator: SubModelOperator) -> str:
    is_boolean = any(tensor is not None and tensor.type == "BOOL" for tensor in graph.inputs_of(operator))
    return "the elements are Booleans; the kernel writes out of bounds" if is_boolean else ""


_FAULTS: Mapping[str, Callable[[SubModelGraph, SubModelOperator], str]] = {
    "BIDIRECTIONAL_SEQUENCE_LSTM": _lstm_fault,
    "BIDIRECTIONAL_SEQUENCE_RNN": _rnn_fault,
    "DEPTHWISE_CONV_2D": _depthwise_fault,
    "MATRIX_DIAG": _diagonal_fault,
    "MATRIX_SET_DIAG": _diagonal_fault,
}
