"""One subgraph while it is built: its operands, its operations, and the handles that users hold."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias, overload

import numpy as np
from numpy.typing import ArrayLike

from nnhal.builder import arguments, control_flow
from nnhal.builder.arguments import Given, Unfit
from nnhal.builder.constants import Constants
from nnhal.builder.control_flow import Callee, described
from nnhal.builder.rules import complaint
from nnhal.errors import invalid_argument
from nnhal.operations import SIGNATURES
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
    """An operand of a model that is being built; for its builder only.

    Attributes:
        description: type, dimensions and quantisation; also useful as the `output` of an operation that keeps them.
        name: as it was given, or "".
    """

    graph: "GraphBuilder"
    index: int
    description: Operand
    name: str = ""

    def __repr__(self) -> str:
        return f"{self.name or f'operand {self.index}'} ({described(self.description)})"


Argument: TypeAlias = "OperandRef | GraphBuilder | ArrayLike | None"
"""What an operation takes for an input."""


class Shared:
    """What all subgraphs of a model have in common.

    Attributes:
        constants: the values of all constants.
        referenced: the subgraphs other than main, by number.
        prefixes: those of the extensions that are used.
    """

    def __init__(self) -> None:
        self.constants = Constants()
        self.referenced: list[GraphBuilder] = []
        self.prefixes: dict[str, int] = {}


class GraphBuilder:
    """A subgraph that is being built: `input`, `constant`, `add` and `output` add to it.

    Each raises HalError INVALID_ARGUMENT for what the HAL does not allow.
    """

    def __init__(self, shared: Shared, place: str) -> None:
        self.place = place
        """What a person calls it: "main", "referenced subgraph 0"."""
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
        """An input of the subgraph.

        Args:
            type_: an OperandType, or one of an extension.
            dimensions: 0 is an unknown dimension, [] an unknown rank; none for scalars.
            channel_quant: scales of TENSOR_QUANT8_SYMM_PER_CHANNEL.
            extension_params: opaque parameters of an extension's type.
            name: for people, and to give inputs by; each once, for all inputs or for none.
        """
        place = f"input {len(self._inputs)} of {self.place}" + (f" ({name})" if name else "")
        self._open(place)
        if name and any(other.name == name for other in self._inputs):
            raise invalid_argument(f"{place}: the name is taken already")
        params = _extra_params(channel_quant, extension_params)
        operand = Operand(
            type_, tuple(dimensions), scale, zero_point, OperandLifeTime.SUBGRAPH_INPUT, extra_params=params
        )
        made = self._add(self._judged(operand, place), name)
        self._inputs.append(made)
        return made

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
        """A constant. A large array is not copied before `build`: leave it as it is until then.

        Args:
            value: an array of the type's dtype; or a number, or a sequence of numbers, which are converted; for types
                of extensions also bytes.
            type_: an OperandType, or one of an extension. None: what the value tells by itself.
            channel_quant: scales of TENSOR_QUANT8_SYMM_PER_CHANNEL.
            extension_params: opaque parameters of an extension's type.
        """
        place = f"constant of {self.place}" + (f" ({type_name(type_)})" if type_ is not None else "")
        self._open(place)
        try:
            data, type_, dimensions = _constant(value, type_)
        except Unfit as unfit:
            raise invalid_argument(f"{place} {unfit}", unfit.rule) from None
        params = _extra_params(channel_quant, extension_params)
        operand = self._judged(Operand(type_, dimensions, scale, zero_point, extra_params=params), place, constant=True)
        return self._add_constant(operand, data)

    def _judged(self, operand: Operand, place: str, *, constant: bool = False) -> Operand:
        """A description as the model holds it: scales are float32 there."""
        params = operand.extra_params
        if isinstance(params, SymmPerChannelQuantParams):
            params = replace(params, scales=tuple(map(_float32, params.scales)))
        dimensions = tuple(map(int, operand.dimensions))
        operand = replace(operand, dimensions=dimensions, scale=_float32(operand.scale), extra_params=params)
        if (wrong := complaint(operand, constant=constant)) is not None:
            raise invalid_argument(f"{place} {wrong[1]}", wrong[0])
        self._judge_prefix(operand.type, f"{place} has operand type")
        return operand

    def _judge_prefix(self, type_: int, text: str) -> None:
        if is_extension(type_) and type_ >> 16 not in self._shared.prefixes.values():
            reason = (
                f"{text} {type_:#x}, but the model has no extension of prefix {type_ >> 16}: ask `extension` for it"
            )
            raise invalid_argument(reason, "V-EXT-08")

    def _add(self, operand: Operand, name: str = "") -> OperandRef:
        self._operands.append(operand)
        return OperandRef(self, len(self._operands) - 1, _described(operand), name)

    def _add_constant(self, operand: Operand, data: AnyArray) -> OperandRef:
        """Equal scalars are one operand."""
        key = (operand.type, data.tobytes()) if operand.type in SCALAR_TYPES else None
        if key in self._scalars:
            return self._scalars[key]
        lifetime, location = self._shared.constants.place(data)
        made = self._add(replace(operand, lifetime=lifetime, location=location))
        if key is not None:
            self._scalars[key] = made
        return made

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
        """An operation.

        Args:
            type_: an OperationType, or one of an extension.
            inputs: operands; numbers, sequences and arrays, which become constants; None for what is omitted;
                subgraphs for IF and WHILE.
            output: type, dimensions and quantisation of the one output. Its shape may be unknown.
            outputs: the same for each of several outputs; give one or the other.

        Returns:
            the output, or the outputs.
        """
        if (output is None) == (outputs is None):
            raise TypeError("add() takes either output= or outputs=")
        descriptions = [output] if output is not None else list(outputs or ())
        place = f"operation {len(self._operations)} of {self.place} ({operation_name(type_)})"
        self._open(place)
        self._judge_prefix(type_, f"{place} has type")
        given = [self._given(value, f"{place}: input {i}") for i, value in enumerate(inputs)]
        results = [self._judged(_described(one), f"{place}: output {i}") for i, one in enumerate(descriptions)]
        wanted = self._fitted(type_, inputs, given, results, place)
        values = [self._value(*one, f"{place}: input {i}") for i, one in enumerate(zip(given, wanted, strict=True))]
        triples = zip(inputs, wanted, values, strict=True)
        numbers = tuple(self._argument(*triple).index for triple in triples)
        made = tuple(self._add(result) for result in results)
        self._operations.append(Operation(type_, numbers, tuple(ref.index for ref in made)))
        return made if output is None else made[0]

    def _given(self, value: Argument, place: str) -> Given:
        """An argument as what it is by itself."""
        match value:
            case OperandRef():
                self._own(value, place)
                return Given((value.description.type,), repr(value), value.description)
            case GraphBuilder():
                self._callable(value, place)
                return Given((OperandType.SUBGRAPH,), value.place, Operand(OperandType.SUBGRAPH))
            case None:
                return arguments.omitted()
            case _:
                try:
                    return arguments.of_value(value)
                except Unfit as unfit:
                    raise invalid_argument(f"{place} {unfit}", unfit.rule) from None

    def _fitted(
        self, type_: int, inputs: Sequence[Argument], given: Sequence[Given], outputs: Sequence[Operand], place: str
    ) -> list[Operand]:
        """What each input has to be."""
        try:
            if type_ in SIGNATURES:
                return arguments.fit(SIGNATURES[type_], given, outputs)
            if type_ in control_flow.FIRST_VALUE:
                return _fit_control_flow(OperationType(type_), inputs, given, outputs)
            if not is_extension(type_):
                last = int(max(OperationType))
                raise Unfit(f"there is no such type: types are 0 to {last}, or those of an extension", "V-OPERATION-01")
            return [_natural(i, one) for i, one in enumerate(given)]
        except Unfit as unfit:
            raise invalid_argument(f"{place}: {unfit}", unfit.rule) from None

    def _value(self, given: Given, wanted: Operand, place: str) -> AnyArray | None:
        if given.value is None:
            return None
        try:
            value = arguments.converted(given, wanted.type)
        except Unfit as unfit:
            raise invalid_argument(f"{place} {unfit}", unfit.rule) from None
        self._judged(wanted, place, constant=True)
        return value

    def _argument(self, given: Argument, wanted: Operand, value: AnyArray | None) -> OperandRef:
        """The operand of an input that has been found good."""
        match given:
            case OperandRef():
                return given
            case GraphBuilder():
                return self._reference(given)
        return self._add(wanted) if value is None else self._add_constant(wanted, value)

    def _reference(self, callee: "GraphBuilder") -> OperandRef:
        if callee not in self._references:
            location = DataLocation(0, self._shared.referenced.index(callee), 0)
            operand = Operand(OperandType.SUBGRAPH, lifetime=OperandLifeTime.SUBGRAPH, location=location)
            self._references[callee] = self._add(operand)
        return self._references[callee]

    # ---- Results --------------------------------------------------------------------------------------

    def output(self, operand: OperandRef, *, name: str = "") -> None:
        """Makes an operand that an operation has written an output of the subgraph.

        Args:
            name: for people, and to take outputs by; each once, for all outputs or for none.
        """
        place = f"output {len(self._outputs)} of {self.place}" + (f" ({name})" if name else "")
        self._open(place)
        self._own(operand, place)
        lifetime = self._operands[operand.index].lifetime
        if lifetime == OperandLifeTime.SUBGRAPH_OUTPUT:
            raise invalid_argument(f"{place} is {operand!r}, which is an output already", "V-SUBGRAPH-06")
        if lifetime != OperandLifeTime.TEMPORARY_VARIABLE:
            what = OperandLifeTime(lifetime).name
            reason = f"{place} is {operand!r}, of lifetime {what}; an output is what an operation has written"
            raise invalid_argument(reason, "V-SUBGRAPH-05")
        if name and any(other == name for _, other in self._outputs):
            raise invalid_argument(f"{place}: the name is taken already")
        self._operands[operand.index] = replace(self._operands[operand.index], lifetime=OperandLifeTime.SUBGRAPH_OUTPUT)
        self._outputs.append((operand, name))

    def _built(self) -> Subgraph:
        """What has been built; checked."""
        if not self._operations:
            raise invalid_argument(f"{self.place} has no operations; `add` at least one", "V-SUBGRAPH-02")
        if not self._outputs:
            raise invalid_argument(f"{self.place} has no outputs; say with `output` what it gives", "V-SUBGRAPH-03")
        return Subgraph(
            tuple(self._operands),
            tuple(self._operations),
            tuple(ref.index for ref in self._inputs),
            tuple(ref.index for ref, _ in self._outputs),
        )

    def _callee(self) -> Callee:
        """What IF and WHILE need to know."""
        inputs = [ref.description for ref in self._inputs]
        return Callee(self.place, inputs, [ref.description for ref, _ in self._outputs])

    # ---- Whose it is ------------------------------------------------------------------------------------

    def _open(self, place: str) -> None:
        if self._complete:
            raise invalid_argument(f"{place}: {self.place} is complete and takes nothing more")

    def _own(self, operand: OperandRef, place: str) -> None:
        """Refuses operands of other subgraphs."""
        if operand.graph is self:
            return
        if operand.graph._shared is not self._shared:
            raise invalid_argument(f"{place} is {operand!r} of another model's builder")
        reason = f"{place} is {operand!r} of {operand.graph.place}; subgraphs share nothing but inputs and outputs"
        raise invalid_argument(reason)

    def _callable(self, callee: "GraphBuilder", place: str) -> None:
        """Refuses subgraphs that cannot be referred to."""
        if callee._shared is not self._shared:
            raise invalid_argument(f"{place} is {callee.place} of another model's builder")
        if callee not in self._shared.referenced:
            raise invalid_argument(f"{place} is main; IF and WHILE run what `subgraph` makes")
        if not callee._complete:
            raise invalid_argument(f"{place} is {callee.place}, which is not complete: end its `with` block first")


def _fit_control_flow(
    type_: OperationType, inputs: Sequence[Argument], given: Sequence[Given], outputs: Sequence[Operand]
) -> list[Operand]:
    callees = [one._callee() if isinstance(one, GraphBuilder) else None for one in inputs]
    first = control_flow.FIRST_VALUE[type_]
    last_callee = callees[first - 1] if len(callees) >= first else None
    wanted = [operand.type for operand in last_callee.inputs] if last_callee else []
    operands = []
    for i, one in enumerate(given):
        if one.value is not None and first <= i < first + len(wanted) and one.types:
            operands.append(one.as_operand(wanted[i - first]))
        else:
            operands.append(_natural(i, one))
    if wrong := control_flow.complaint(type_, operands, callees, outputs):
        raise Unfit(wrong[1], wrong[0])
    return operands


def _natural(index: int, given: Given) -> Operand:
    try:
        return arguments.natural(given)
    except Unfit as unfit:
        raise Unfit(f"input {index} {unfit}") from None


def _constant(value: ArrayLike | bytes, type_: int | None) -> tuple[AnyArray, int, tuple[int, ...]]:
    """The value of a constant as the model holds it, its type and its dimensions.

    Raises:
        Unfit: the type does not go with the value.
    """
    if type_ is not None and is_extension(type_):
        if isinstance(value, bytes):
            return np.frombuffer(value, np.uint8), type_, ()
        array = np.asarray(value)
        return array, type_, array.shape
    given = arguments.of_value(value)
    assert given.value is not None
    if type_ is None:
        type_ = arguments.natural(given).type
    if type_ not in DTYPES:
        wrong = complaint(Operand(type_))
        raise Unfit(wrong[1] if wrong else "cannot be a constant")
    if arguments.is_array(value) and given.value.dtype != DTYPES[type_]:
        dtype = DTYPES[type_]
        raise Unfit(f"is an {given.text}, not of {dtype}: convert it with astype(np.{dtype})")
    return arguments.converted(given, type_), type_, given.value.shape


def _described(operand: Operand) -> Operand:
    """What an operand is, without where its value comes from."""
    return replace(operand, lifetime=OperandLifeTime.TEMPORARY_VARIABLE, location=DataLocation())


def _extra_params(channel_quant: SymmPerChannelQuantParams | None, extension_params: bytes | None) -> ExtraParams:
    if extension_params is not None:
        return ExtensionParams(extension_params)
    return channel_quant


def _float32(number: float) -> float:
    """A number as the contract carries it."""
    with np.errstate(over="ignore"):
        return float(np.float32(number))
