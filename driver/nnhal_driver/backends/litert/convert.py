"""Conversion of a subgraph, with the shapes of its inputs, to a TFLite model."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from nnhal.errors import HalError
from nnhal.types import AnyArray, OperandLifeTime, byte_size
from nnhal_driver.backends.api import SubgraphView
from nnhal_driver.backends.litert.inlining import inline, is_submodel, runs_alone, submodel_of
from nnhal_driver.backends.litert.limits import check_scales, check_shapes
from nnhal_driver.backends.litert.lowering import CONVERTERS, LIMITS, Lowering, Network
from nnhal_driver.backends.litert.shape_analysis import (
    Shapes,
    StaticCall,
    StaticShapes,
    Unsupported,
    analyze_shapes,
    infer_call,
)
from nnhal_driver.backends.litert.submodel import ITEM_BITS
from nnhal_driver.backends.litert.writer import ModelFile, ModelWriter, Reserve, write_subgraphs
from nnhal_driver.graph import OperationView
from nnhal_driver.operations import SHAPE_RULES
from nnhal_driver.operations.call import Shape
from nnhal_driver.operations.multiply_adds import count_multiply_adds
from nnhal_driver.operations.shape import MAX_TENSOR_BYTES

_PASSES = 40
"""Multiply-adds in the time of an element: memory bounds such work."""
_MAX_LIVE_TENSORS = 2**14
"""Most tensors in use at the same time. The engine compares each with all others in one call that nothing can end: it
takes 0.2 s for 10,000, and 2.8 s for 40,000."""


@dataclass(frozen=True, slots=True)
class ConvertedModel:
    """A subgraph as a TFLite model, for inputs of certain shapes.

    Attributes:
        inputs: for each input of the subgraph the tensor to write; None if nothing reads it.
        outputs: for each output the tensor to read, or None if it is constant, and its shape.
        operators: names of its operators, in order.
        constants: constant outputs, by their position among the outputs.
        has_variables: whether operators keep values between executions, which must be reset.
        engine_bytes: estimate of the memory of one interpreter: its tensors, the packed form of the constants, and what
            kernels need besides.
        steps: estimate of its work in multiply-adds, without that of regions.
        has_regions: whether it contains operators of sub-models.
        is_dynamic: whether it is one region whose shapes become known when it runs. Those of its outputs are declared.
    """

    file: ModelFile
    inputs: tuple[int | None, ...]
    outputs: tuple[tuple[int | None, Shape], ...]
    operators: tuple[str, ...]
    constants: Mapping[int, AnyArray]
    has_variables: bool = False
    engine_bytes: int = 0
    steps: int = 0
    has_regions: bool = False
    is_dynamic: bool = False


def check_operation(view: OperationView) -> None:
    """Check that an operation can be converted.

    Raises:
        Unsupported: the engine cannot compute it as NNAPI defines it, or too little is known about its arguments.
    """
    known = analyze_shapes(view.graph)
    if view.index in known.constants.folded:
        return
    if is_submodel(view):
        submodel_of(view)
        return
    form = _form(view, known)
    converted: set[Hashable] = view.graph.annotations.setdefault(check_operation, set())
    if form in converted:
        return
    if view.type not in CONVERTERS or view.type not in SHAPE_RULES or view.arguments is None:
        raise Unsupported(f"{view.graph.operation_name(view.type)} has no counterpart in the engine")
    for name in view.arguments.inputs:
        operand, position = view.operand(name), view.positions[name]
        if operand.lifetime == OperandLifeTime.NO_VALUE:
            continue
        if name in view.arguments.optional and operand.lifetime == OperandLifeTime.SUBGRAPH_INPUT:
            raise Unsupported(f"{name} may be omitted at execution", f"{name} constant, or omitted in the model")
        if position not in known.shapes:
            raise Unsupported(f"the shape of {name} is not known before execution", f"{name} with known dimensions")
    network = Network(known.constants, known.shapes)
    _convert_call(network, known.calls.get(view.index) or _infer_call(view, known, known.shapes)[0])
    converted.add(form)


def _form(view: OperationView, known: StaticShapes) -> Hashable:
    """Return all that the conversion of an operation depends on. Operations of equal forms are converted alike."""
    operands, uses, shapes = view.graph.operands, view.graph.use_counts, known.shapes
    numbers: dict[int, int] = {}
    parts: list[Hashable] = [view.type, len(view.operation.inputs)]
    for o in (*view.operation.inputs, *view.operation.outputs):
        if o in known.constants:
            parts.append(o)  # its value matters
        else:
            parts.append((operands[o], shapes.get(o), uses[o], numbers.setdefault(o, len(numbers))))
    return tuple(parts)


def static_shapes(subgraph: SubgraphView) -> list[Shape] | None:
    """Return the shapes of a subgraph's inputs if the model fixes them, otherwise None."""
    known = analyze_shapes(subgraph.graph)
    if any(i not in known.shapes or i in known.varying for i in subgraph.inputs):
        return None
    return [known.shapes[i] for i in subgraph.inputs]


@dataclass(frozen=True, slots=True)
class LoweredSubgraph:
    """The operators of a subgraph, before they are written.

    Attributes:
        writer: the operators and their tensors.
        inputs, outputs, constants, steps: see `ConvertedModel`.
    """

    writer: ModelWriter
    inputs: tuple[int | None, ...]
    outputs: tuple[tuple[int | None, Shape], ...]
    constants: Mapping[int, AnyArray]
    steps: int

    @property
    def part(self) -> tuple[ModelWriter, list[int], list[int]]:
        """The operators, the tensors of the inputs that they read, and those of the outputs that are not constant."""
        inputs = [tensor for tensor in self.inputs if tensor is not None]
        return self.writer, inputs, [tensor for tensor, _ in self.outputs if tensor is not None]


def convert(
    subgraph: SubgraphView,
    shapes: Sequence[Shape],
    tensor_bytes: int,
    check: Callable[[], None] = lambda: None,
    reserve: Reserve = lambda size: None,
) -> ConvertedModel:
    """Convert a subgraph for inputs of the given shapes.

    Raises:
        Unsupported: see `lower`; or too many tensors are in use at the same time.
        HalError: raised by `check` or `reserve`.
    """
    lowered = lower(subgraph, shapes, tensor_bytes, check)
    check()
    writer = lowered.writer
    arena_bytes, live_tensors = writer.arena(lowered.part[2])
    if live_tensors > _MAX_LIVE_TENSORS:
        raise Unsupported(f"{live_tensors} tensors are in use at the same time", f"at most {_MAX_LIVE_TENSORS}")
    file = write_subgraphs([lowered.part], reserve)
    analyze_shapes(subgraph.graph).constants.forget()
    return ConvertedModel(
        file,
        lowered.inputs,
        lowered.outputs,
        tuple(writer.operators),
        lowered.constants,
        bool(writer.variables),
        arena_bytes + writer.packed_bytes() + writer.kernel_bytes(),
        lowered.steps,
        any(map(is_submodel, subgraph.operations)),
    )


def region_of(subgraph: SubgraphView) -> OperationView | None:
    """Return the only operation of a subgraph if it is a region that runs alone."""
    view, *others = subgraph.operations
    return view if not others and is_submodel(view) and runs_alone(view) else None


def region_model(view: OperationView, reserve: Reserve) -> ConvertedModel:
    """Return a region that runs alone as a model. Raises as `submodel_of`, or what `reserve` raises."""
    model, operands = submodel_of(view), view.graph.operands
    shapes = (operands[o].dimensions for o in view.operation.outputs)
    data = view.graph.constants[view.operation.inputs[0]].tobytes()
    sizes = (max(tensor.elements, 0) * ITEM_BITS.get(tensor.type, 64) // 8 for tensor in model.main.tensors)
    return ConvertedModel(
        ModelFile(data, (), (), reserve),
        model.main.inputs,
        tuple(zip(model.main.outputs, shapes, strict=True)),
        tuple(operator.kind for operator in model.main.operators),
        {},
        any(tensor.is_variable for graph in model.graphs for tensor in graph.tensors),
        sum(sizes),
        has_regions=True,
        is_dynamic=True,
    )


def lower(
    subgraph: SubgraphView, shapes: Sequence[Shape], tensor_bytes: int, check: Callable[[], None] = lambda: None
) -> LoweredSubgraph:
    """Lower a subgraph to operators for inputs of the given shapes. `check` is called between operations.

    Raises:
        Unsupported: the engine does not support these shapes, or they violate a rule of an operation.
    """
    graph = subgraph.graph
    known = analyze_shapes(graph)
    constants = known.constants
    operand_shapes = {index: value.shape for index, value in graph.constants.items()}
    operand_shapes.update((o, known.shapes[o]) for o in subgraph.inputs if o in constants)
    operand_shapes.update(zip(subgraph.inputs, shapes, strict=True))
    network = Network(constants, operand_shapes)
    steps = 0
    is_known = all(known.shapes.get(i) == shape for i, shape in zip(subgraph.inputs, shapes, strict=True))
    for view in subgraph.operations:
        check()
        if is_submodel(view):
            operand_shapes.update((o, graph.operands[o].dimensions) for o in view.operation.outputs)
            inline(network, view)
            continue
        cached = _cached_call(view, known, tensor_bytes) if is_known else None
        call, output_shapes = cached or _infer_call(view, known, operand_shapes, tensor_bytes)
        operand_shapes.update(zip(view.operation.outputs, output_shapes, strict=True))
        if view.index not in constants.folded:
            _convert_call(network, call)
            used = (*view.operation.inputs, *view.operation.outputs)
            shapes_of = {o: operand_shapes[o] for o in used if operand_shapes.get(o)}
            elements = sum(prod(shape) for o, shape in shapes_of.items() if o not in network.constants)
            steps += (count_multiply_adds(view, shapes_of) or 0) + _PASSES * elements
    # constants are neither inputs nor outputs of the engine
    inputs = (None if i in constants else network.tensors.get(i) for i in subgraph.inputs)
    outputs = ((None if o in constants else network.tensors[o], operand_shapes[o]) for o in subgraph.outputs)
    constant_outputs = {i: constants.array(o) for i, o in enumerate(subgraph.outputs) if o in constants}
    return LoweredSubgraph(network.writer, tuple(inputs), tuple(outputs), constant_outputs, steps)


def _cached_call(view: OperationView, known: StaticShapes, tensor_bytes: int) -> tuple[StaticCall, list[Shape]] | None:
    """Return the call from the analysis of the graph; None if there is none, or an output is too large."""
    call = known.calls.get(view.index)
    if call is None:
        return None
    shapes = [known.shapes[o] for o in view.operation.outputs]
    sizes = (byte_size(view.graph.operands[o].type, s) for o, s in zip(view.operation.outputs, shapes, strict=True))
    return (call, shapes) if max(sizes) <= tensor_bytes else None


def _infer_call(
    view: OperationView, known: StaticShapes, shapes: Shapes, tensor_bytes: int = MAX_TENSOR_BYTES
) -> tuple[StaticCall, list[Shape]]:
    try:
        return infer_call(view, shapes, known.constants, tensor_bytes)
    except HalError as error:
        raise Unsupported(f"it fails whenever it is executed: {error}") from None


def _convert_call(network: Network, call: StaticCall) -> None:
    limits = LIMITS[call.view.type]
    check_shapes(call, network.shapes, limits)
    check_scales(call, limits)
    Lowering(network, call).convert()
