"""Builder of one subgraph: its operands, its operations, and the references that users hold."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias, overload

import numpy as np
from numpy.typing import ArrayLike

from nnhal.builder.arguments import (
    ArgumentError,
    CallArgument,
    convert_value,
    default_operand,
    fit_to_signature,
    is_array,
    require_type,
    value_argument,
)
from nnhal.builder.constants import Constants
from nnhal.errors import invalid_argument
from nnhal.operations import SIGNATURES
from nnhal.rules.control_flow import CONTROL_FLOW_RULES, FIRST_VALUE, Callee, ControlFlow
from nnhal.rules.operand import OPERAND_RULES, RANGE_RULES
from nnhal.types import (
    DTYPES,
    SCALAR_TYPES,
    AnyArray,
    DataLocation,
    ExtensionParams,
    ExtraParams,
    Operand,
    OperandLifeTime,
    OperandType,
    Operation,
    OperationType,
    Subgraph,
    SymmPerChannelQuantParams,
    is_extension,
    operation_name,
    type_name,
)


@dataclass(frozen=True, eq=False)
class OperandRef:
    """An operand of a model that is being built. Only the builder that created it accepts it.

    Attributes:
        description: type, dimensions and quantization, for example for the `output` of an operation that keeps them.
        name: the name of an input, or "".
    """

    graph: "GraphBuilder"
    index: int
    description: Operand
    name: str = ""

    def __repr__(self) -> str:
        return f"{self.name or f'operand {self.index}'} ({_describe(self.description)})"


Argument: TypeAlias = "OperandRef | GraphBuilder | ArrayLike | None"
"""An input of an operation."""


class SharedState:
    """State that the subgraphs of a model share.

    Attributes:
        referenced: the subgraphs other than main, by number.
        prefixes: the prefix of each extension, by name.
    """

    def __init__(self) -> None:
        self.constants = Constants()
        self.referenced: list[GraphBuilder] = []
        self.prefixes: dict[str, int] = {}


class GraphBuilder:
    """Builder of a subgraph: `input`, `constant`, `add` and `output` add to it.

    Each method raises HalError INVALID_ARGUMENT if its arguments break a rule of the HAL.

    Attributes:
        name: the name of the subgraph in messages: "main", "referenced subgraph 0".
    """

    def __init__(self, shared: SharedState, name: str) -> None:
        self.name = name
        self._shared = shared
        self._complete = False
        self._operands: list[Operand] = []
        self._operations: list[Operation] = []
        self._inputs: list[OperandRef] = []
        self._outputs: list[tuple[OperandRef, str]] = []
        self._scalars: dict[tuple[int, bytes], OperandRef] = {}
        self._references: dict[GraphBuilder, OperandRef] = {}

    # ---- Operands -------------------------------------------------------------------------------------

    def input(
        self,
        type_: int,
        dimensions: Sequence[int] = (),
        *,
        scale: float = 0.0,
        zero_point: int = 0,
        channel_quant: SymmPerChannelQuantParams | None = None,
        extension_params: bytes | None = None,
        name: str = "",
    ) -> OperandRef:
        """Add an input of the subgraph.

        Args:
            type_: an OperandType, or an operand type of an extension.
            dimensions: 0 is an unknown dimension, [] an unknown rank; scalars have none.
            scale: the scale of a quantized type.
            zero_point: the zero point of a quantized type.
            channel_quant: the scales of TENSOR_QUANT8_SYMM_PER_CHANNEL.
            extension_params: the opaque parameters of an extension type.
            name: a unique name by which callers pass the input. Name all inputs or none.
        """
        location = f"input {len(self._inputs)}{f' {name!r}' if name else ''} of {self.name}"
        self._require_incomplete(location)
        require_type(type_, int, f"type of {location}", "an OperandType")
        if name and any(other.name == name for other in self._inputs):
            raise invalid_argument(f"{location}: the name is taken already")
        params = _extra_params(channel_quant, extension_params)
        operand = Operand(
            type_, tuple(dimensions), scale, zero_point, OperandLifeTime.SUBGRAPH_INPUT, extra_params=params
        )
        ref = self._add(self._normalize(operand, location), name)
        self._inputs.append(ref)
        return ref

    def constant(
        self,
        value: ArrayLike | bytes,
        type_: int | None = None,
        *,
        scale: float = 0.0,
        zero_point: int = 0,
        channel_quant: SymmPerChannelQuantParams | None = None,
        extension_params: bytes | None = None,
    ) -> OperandRef:
        """Add a constant. `build` copies large arrays: do not change them before.

        Args:
            value: an array of the type's dtype, or a number or a sequence of numbers, which are converted. Bytes are
                allowed for extension types.
            type_: an OperandType, or an operand type of an extension. None: the default type of the value.
            scale: the scale of a quantized type.
            zero_point: the zero point of a quantized type.
            channel_quant: the scales of TENSOR_QUANT8_SYMM_PER_CHANNEL.
            extension_params: the opaque parameters of an extension type.
        """
        location = f"constant of {self.name}"
        self._require_incomplete(location)
        if type_ is not None:
            require_type(type_, int, f"type of {location}", "an OperandType")
        try:
            data, type_, dimensions = _convert_constant(value, type_)
        except ArgumentError as error:
            type_text = f" ({type_name(type_)})" if type_ is not None else ""
            raise invalid_argument(f"{location}{type_text} {error}", error.rule) from None
        params = _extra_params(channel_quant, extension_params)
        constant = Operand(type_, dimensions, scale, zero_point, OperandLifeTime.CONSTANT_COPY, extra_params=params)
        return self._add_constant(self._normalize(constant, location), data)

    def _normalize(self, operand: Operand, location: str) -> Operand:
        """Return a valid operand with its scales rounded to float32, which is how the contract carries them."""
        params = operand.extra_params
        if isinstance(params, SymmPerChannelQuantParams):
            params = replace(params, scales=tuple(map(_float32, params.scales)))
        dimensions = tuple(map(int, operand.dimensions))
        operand = replace(operand, dimensions=dimensions, scale=_float32(operand.scale), extra_params=params)
        for rules in (RANGE_RULES, OPERAND_RULES):
            rules.check(operand, lambda: f"{location} ({type_name(operand.type)})")
        self._require_prefix(operand.type, f"{location} has operand type")
        return operand

    def _require_prefix(self, type_: int, text: str) -> None:
        """Raise HalError for a type of an extension that the model does not have. `text` opens the message."""
        if is_extension(type_) and type_ >> 16 not in self._shared.prefixes.values():
            reason = (
                f"{text} {type_:#x}, but the model has no extension of prefix {type_ >> 16}: ask `extension` for it"
            )
            raise invalid_argument(reason, "V-EXT-08")

    def _add(self, operand: Operand, name: str = "") -> OperandRef:
        self._operands.append(operand)
        return OperandRef(self, len(self._operands) - 1, _without_value(operand), name)

    def _add_constant(self, operand: Operand, data: AnyArray) -> OperandRef:
        """Store a constant and add its operand. Equal scalars share one operand."""
        key = (operand.type, data.tobytes()) if operand.type in SCALAR_TYPES else None
        if key in self._scalars:
            return self._scalars[key]
        lifetime, location = self._shared.constants.add(data)
        ref = self._add(replace(operand, lifetime=lifetime, location=location))
        if key is not None:
            self._scalars[key] = ref
        return ref

    # ---- Operations -----------------------------------------------------------------------------------

    @overload
    def add(self, type_: int, *inputs: Argument, output: Operand) -> OperandRef: ...

    @overload
    def add(self, type_: int, *inputs: Argument, outputs: Sequence[Operand]) -> tuple[OperandRef, ...]: ...

    def add(
        self,
        type_: int,
        *inputs: Argument,
        output: Operand | None = None,
        outputs: Sequence[Operand] | None = None,
    ) -> OperandRef | tuple[OperandRef, ...]:
        """Add an operation.

        Args:
            type_: an OperationType, or an operation type of an extension.
            inputs: operands; numbers, sequences and arrays, which become constants; None for an omitted input;
                subgraphs for IF and WHILE.
            output: type, dimensions and quantization of a single output. Its shape may be unknown.
            outputs: the same for each of several outputs. Pass either `output` or `outputs`.

        Returns:
            The output, or a tuple of the outputs.
        """
        if (output is None) == (outputs is None):
            given = "neither" if output is None else "both"
            raise TypeError(f"add() has {given} of output= and outputs=; expected one of them")
        require_type(type_, int, f"type of operation {len(self._operations)} of {self.name}", "an OperationType")
        descriptions = [output] if output is not None else list(outputs or ())
        location = f"operation {len(self._operations)} of {self.name} ({operation_name(type_)})"
        self._require_incomplete(location)
        self._require_prefix(type_, f"{location} has type")
        for i, operand in enumerate(descriptions):
            require_type(operand, Operand, f"{location}: output {i}", "an Operand")
        arguments = [self._call_argument(value, f"{location}: input {i}") for i, value in enumerate(inputs)]
        results = [
            self._normalize(_without_value(operand), f"{location}: output {i}")
            for i, operand in enumerate(descriptions)
        ]
        operands = self._fit(type_, inputs, arguments, results, location)
        values = [
            self._convert(argument, operand, f"{location}: input {i}")
            for i, (argument, operand) in enumerate(zip(arguments, operands, strict=True))
        ]
        # Nothing is added before this line, so that a rejected operation leaves no operands behind.
        input_indexes = tuple(self._add_input(*parts).index for parts in zip(inputs, operands, values, strict=True))
        refs = tuple(self._add(result) for result in results)
        self._operations.append(Operation(type_, input_indexes, tuple(ref.index for ref in refs)))
        return refs if output is None else refs[0]

    def _call_argument(self, value: Argument, location: str) -> CallArgument:
        match value:
            case OperandRef():
                self._require_own(value, location)
                return CallArgument((value.description.type,), repr(value), value.description)
            case GraphBuilder():
                self._require_callable(value, location)
                reference = Operand(OperandType.SUBGRAPH, lifetime=OperandLifeTime.SUBGRAPH)
                return CallArgument((OperandType.SUBGRAPH,), value.name, reference)
            case None:
                return CallArgument((), "None")
            case _:
                try:
                    return value_argument(value)
                except ArgumentError as error:
                    raise invalid_argument(f"{location} {error}", error.rule) from None

    def _fit(
        self,
        type_: int,
        inputs: Sequence[Argument],
        arguments: Sequence[CallArgument],
        outputs: Sequence[Operand],
        location: str,
    ) -> list[Operand]:
        """Return the operand that each input must have. Raise HalError if the arguments do not fit the operation."""
        try:
            if type_ in SIGNATURES:
                return fit_to_signature(SIGNATURES[type_], arguments, outputs)
            if type_ in CONTROL_FLOW_RULES:
                return _fit_to_callees(type_, inputs, arguments, outputs)
            if not is_extension(type_):
                last = int(max(OperationType))
                text = f"there is no such type: types are 0 to {last}, or those of an extension"
                raise ArgumentError(text, "V-OPERATION-01")
            return [_default_input(i, argument) for i, argument in enumerate(arguments)]
        except ArgumentError as error:
            raise invalid_argument(f"{location}: {error}", error.rule) from None

    def _convert(self, argument: CallArgument, operand: Operand, location: str) -> AnyArray | None:
        """Return the value of an argument as `operand` holds it, or None if the argument has no value."""
        if argument.value is None:
            return None
        try:
            value = convert_value(argument, operand.type)
        except ArgumentError as error:
            raise invalid_argument(f"{location} {error}", error.rule) from None
        self._normalize(replace(operand, lifetime=OperandLifeTime.CONSTANT_COPY), location)
        return value

    def _add_input(self, argument: Argument, operand: Operand, value: AnyArray | None) -> OperandRef:
        """Return the operand of a valid input; add it if it is new."""
        match argument:
            case OperandRef():
                return argument
            case GraphBuilder():
                return self._reference(argument)
        return self._add(operand) if value is None else self._add_constant(operand, value)

    def _reference(self, callee: "GraphBuilder") -> OperandRef:
        if callee not in self._references:
            location = DataLocation(0, self._shared.referenced.index(callee), 0)
            operand = Operand(OperandType.SUBGRAPH, lifetime=OperandLifeTime.SUBGRAPH, location=location)
            self._references[callee] = self._add(operand)
        return self._references[callee]

    # ---- Results --------------------------------------------------------------------------------------

    def output(self, operand: OperandRef, *, name: str = "") -> None:
        """Make an operand that an operation has written an output of the subgraph.

        Args:
            operand: the output of an operation.
            name: a unique name by which callers find the output. Name all outputs or none.
        """
        location = f"output {len(self._outputs)}{f' {name!r}' if name else ''} of {self.name}"
        self._require_incomplete(location)
        require_type(operand, OperandRef, location, "the result of `add`")
        self._require_own(operand, location)
        lifetime = self._operands[operand.index].lifetime
        if lifetime == OperandLifeTime.SUBGRAPH_OUTPUT:
            raise invalid_argument(f"{location} is {operand!r}, which is an output already", "V-SUBGRAPH-06")
        if lifetime != OperandLifeTime.TEMPORARY_VARIABLE:
            reason = f"is {operand!r}, of lifetime {OperandLifeTime(lifetime).name}"
            raise invalid_argument(f"{location} {reason}; expected the output of an operation", "V-SUBGRAPH-05")
        if name and any(other == name for _, other in self._outputs):
            raise invalid_argument(f"{location}: the name is taken already")
        self._operands[operand.index] = replace(self._operands[operand.index], lifetime=OperandLifeTime.SUBGRAPH_OUTPUT)
        self._outputs.append((operand, name))

    def _subgraph(self) -> Subgraph:
        """Return the finished subgraph. Raise HalError if it has no operations or no outputs."""
        if not self._operations:
            raise invalid_argument(f"{self.name} has no operations; `add` at least one", "V-SUBGRAPH-02")
        if not self._outputs:
            raise invalid_argument(f"{self.name} has no outputs; call `output` at least once", "V-SUBGRAPH-03")
        return Subgraph(
            tuple(self._operands),
            tuple(self._operations),
            tuple(ref.index for ref in self._inputs),
            tuple(ref.index for ref, _ in self._outputs),
        )

    def _callee(self) -> Callee:
        inputs = [ref.description for ref in self._inputs]
        return Callee(self.name, inputs, [ref.description for ref, _ in self._outputs])

    # ---- Ownership ------------------------------------------------------------------------------------

    def _require_incomplete(self, location: str) -> None:
        """Raise HalError if the subgraph is complete."""
        if self._complete:
            raise invalid_argument(f"{location}: {self.name} is complete and cannot be changed")

    def _require_own(self, operand: OperandRef, location: str) -> None:
        """Raise HalError for an operand of another subgraph."""
        if operand.graph is self:
            return
        if operand.graph._shared is not self._shared:
            raise invalid_argument(f"{location} is {operand!r} of another model's builder")
        reason = f"{location} is {operand!r} of {operand.graph.name}; subgraphs share nothing but inputs and outputs"
        raise invalid_argument(reason)

    def _require_callable(self, callee: "GraphBuilder", location: str) -> None:
        """Raise HalError for a subgraph that an operation of this one cannot refer to."""
        if callee._shared is not self._shared:
            raise invalid_argument(f"{location} is {callee.name} of another model's builder")
        if callee not in self._shared.referenced:
            raise invalid_argument(f"{location} is main; IF and WHILE run subgraphs that `subgraph` creates")
        if not callee._complete:
            raise invalid_argument(f"{location} is {callee.name}, which is not complete: end its `with` block first")


def _fit_to_callees(
    type_: int, inputs: Sequence[Argument], arguments: Sequence[CallArgument], outputs: Sequence[Operand]
) -> list[Operand]:
    """Return the operands of the inputs of an IF or WHILE, or raise ArgumentError if they do not match the subgraphs.

    Numbers take the types of the last callee's inputs.
    """
    callees = [value._callee() if isinstance(value, GraphBuilder) else None for value in inputs]
    first = FIRST_VALUE[type_]
    last_callee = callees[first - 1] if len(callees) >= first else None
    types = [operand.type for operand in last_callee.inputs] if last_callee else []
    operands = []
    for i, argument in enumerate(arguments):
        if argument.value is not None and first <= i < first + len(types) and argument.types:
            operands.append(argument.as_operand(types[i - first]))
        else:
            operands.append(_default_input(i, argument))
    if broken := CONTROL_FLOW_RULES[type_].first_broken(ControlFlow(operands, outputs, callees)):
        rule, problem = broken
        raise ArgumentError(problem, rule)
    return operands


def _default_input(index: int, argument: CallArgument) -> Operand:
    try:
        return default_operand(argument)
    except ArgumentError as error:
        raise ArgumentError(f"input {index} {error}") from None


def _convert_constant(value: ArrayLike | bytes, type_: int | None) -> tuple[AnyArray, int, tuple[int, ...]]:
    """Return the value of a constant as the model holds it, its type and its dimensions, or raise ArgumentError."""
    if type_ is not None and is_extension(type_):
        if isinstance(value, bytes):
            return np.frombuffer(value, np.uint8), type_, ()
        array = np.asarray(value)
        return array, type_, array.shape
    argument = value_argument(value)
    assert argument.value is not None
    if type_ is None:
        type_ = default_operand(argument).type
    if type_ not in DTYPES:
        broken = OPERAND_RULES.first_broken(Operand(type_))
        raise ArgumentError(broken[1] if broken else "cannot be a constant")
    if is_array(value) and argument.value.dtype != DTYPES[type_]:
        dtype = DTYPES[type_]
        raise ArgumentError(f"is an {argument.text}, not of {dtype}: convert it with astype(np.{dtype})")
    return convert_value(argument, type_), type_, argument.value.shape


def _without_value(operand: Operand) -> Operand:
    """Return the type, dimensions and quantization of an operand, without the location of its value."""
    return replace(operand, lifetime=OperandLifeTime.TEMPORARY_VARIABLE, location=DataLocation())


def _describe(operand: Operand) -> str:
    """Return type, dimensions and quantization as text."""
    words = [type_name(operand.type)]
    if operand.dimensions:
        words.append(str(list(operand.dimensions)))
    if operand.scale:
        words.append(f"scale {operand.scale:g} zero point {operand.zero_point}")
    return " ".join(words)


def _extra_params(channel_quant: SymmPerChannelQuantParams | None, extension_params: bytes | None) -> ExtraParams:
    if extension_params is not None:
        return ExtensionParams(extension_params)
    return channel_quant


def _float32(number: float) -> float:
    """Return a number rounded to float32."""
    with np.errstate(over="ignore"):
        return float(np.float32(number))
