"""From a subgraph, with the shapes of its inputs, to a TFLite model."""

from collections.abc import Sequence
from dataclasses import dataclass

from driver.backends.api import SubgraphView
from driver.backends.litert.known import KnownCall, Refused, Shapes, Statics, inferred, statics
from driver.backends.litert.limits import hold_scales, hold_shapes
from driver.backends.litert.lowering import CONVERTERS, LIMITS, Lowering, Network
from driver.backends.litert.writer import ModelFile
from driver.graph import OperationView
from driver.operations import SHAPE_RULES
from driver.operations.call import Shape
from driver.operations.shape import MAX_TENSOR_BYTES
from nnhal.errors import HalError
from nnhal.types import OperandLifeTime, byte_size, operation_name


@dataclass(frozen=True, slots=True)
class Built:
    """A subgraph as a TFLite model, for inputs of certain shapes.

    Attributes:
        file: the model.
        inputs: for each input of the subgraph the tensor to write; None for one that nothing reads.
        outputs: for each output the tensor to read, and its shape.
        operators: names of its operators, in order.
    """

    file: ModelFile
    inputs: tuple[int | None, ...]
    outputs: tuple[tuple[int, Shape], ...]
    operators: tuple[str, ...]


def check(view: OperationView) -> None:
    """Converts an operation and throws the result away.

    Raises:
        Refused: the engine cannot do the operation as NNAPI means it, or not enough is known of its arguments.
    """
    if view.type not in CONVERTERS or view.type not in SHAPE_RULES or view.arguments is None:
        raise Refused(f"{operation_name(view.type)} has no counterpart in the engine")
    known = statics(view.graph)
    for name in view.arguments.inputs:
        operand, position = view.operand(name), view.positions[name]
        if operand.lifetime == OperandLifeTime.NO_VALUE:
            continue
        if name in view.arguments.optional and operand.lifetime == OperandLifeTime.SUBGRAPH_INPUT:
            raise Refused(f"{name} may be omitted at execution", f"{name} constant, or omitted in the model")
        if position not in known.shapes:
            raise Refused(f"the shape of {name} is not known before execution", f"{name} with known dimensions")
    network = Network(view.graph.constants, known.shapes)
    _convert(network, known.calls.get(view.index) or _call(view, known.shapes, MAX_TENSOR_BYTES)[0])


def static_shapes(subgraph: SubgraphView) -> list[Shape] | None:
    """Shapes of a subgraph's inputs, if the model fixes them."""
    known = statics(subgraph.graph)
    if any(i not in known.shapes or i in known.varying for i in subgraph.inputs):
        return None
    return [known.shapes[i] for i in subgraph.inputs]


def build(subgraph: SubgraphView, shapes: Sequence[Shape], tensor_bytes: int) -> Built:
    """The model of a subgraph for inputs of the given shapes.

    Raises:
        Refused: the engine cannot do it for these shapes, or they break a rule of an operation.
    """
    graph = subgraph.graph
    found = {index: value.shape for index, value in graph.constants.items()}
    found.update(zip(subgraph.inputs, shapes, strict=True))
    network = Network(graph.constants, found)
    known = statics(graph)
    usual = all(known.shapes.get(i) == shape for i, shape in zip(subgraph.inputs, shapes, strict=True))
    for view in subgraph.operations:
        call, made = (_followed(view, known, tensor_bytes) if usual else None) or _call(view, found, tensor_bytes)
        found.update(zip(view.operation.outputs, made, strict=True))
        _convert(network, call)
    outputs = [network.tensors[o] for o in subgraph.outputs]
    read = [network.tensors.get(i) for i in subgraph.inputs]
    file = network.writer.write([i for i in read if i is not None], outputs)
    places = tuple((tensor, found[o]) for tensor, o in zip(outputs, subgraph.outputs, strict=True))
    return Built(file, tuple(read), places, tuple(network.writer.operators))


def _followed(view: OperationView, known: Statics, tensor_bytes: int) -> tuple[KnownCall, list[Shape]] | None:
    """What is known already; None where nothing is, or an output is larger than the device allows."""
    call = known.calls.get(view.index)
    if call is None:
        return None
    shapes = [known.shapes[o] for o in view.operation.outputs]
    sizes = (byte_size(view.graph.operands[o].type, s) for o, s in zip(view.operation.outputs, shapes, strict=True))
    return (call, shapes) if max(sizes) <= tensor_bytes else None


def _call(view: OperationView, shapes: Shapes, tensor_bytes: int) -> tuple[KnownCall, list[Shape]]:
    declared = [view.graph.operands[o].dimensions for o in view.operation.outputs]
    try:
        return inferred(view, shapes, declared, tensor_bytes)
    except HalError as error:
        raise Refused(f"it fails whenever it is executed: {error}") from None


def _convert(network: Network, call: KnownCall) -> None:
    limits = LIMITS[call.view.type]
    hold_shapes(call, network.shapes, limits)
    hold_scales(call, limits)
    Lowering(network, call).convert()
