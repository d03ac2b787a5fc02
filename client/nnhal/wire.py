"""Conversion between canonical types and the contract's messages, for clients and the service.

The conversion checks nothing: a number out of range stays as it is, and an unset union becomes `UnsetUnion`, so that
`nnhal_driver.validation` can reject it. A message may only refer to its memory. Callers of `to_model` and `to_request`
therefore pass a function that finds the pool of a `Memory` message. Callers of `model_message` and `request_message`
pass one that makes the message of a pool.

`*_message` functions convert to messages, `to_*` functions convert from messages.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import TypeAlias, TypeVar

import numpy as np

from nnhal import types as t
from nnhal.v1 import cache_pb2, device_pb2, enums_pb2, models_pb2, types_pb2

ReadMemory: TypeAlias = Callable[[types_pb2.Memory], t.Memory | t.UnsetUnion]
"""Returns the pool of a Memory message."""
SendMemory: TypeAlias = Callable[[t.Memory], types_pb2.Memory]
"""Returns the message of a pool, for example with its bytes inline."""
SendOutput: TypeAlias = Callable[[t.Bytes, types_pb2.ReturnedOutput], None]
"""Fills the message of a returned output, for example with its bytes."""

_E = TypeVar("_E")
_T = TypeVar("_T")
_FEW = 256
"""Number of elements between two turns of other threads."""


def inline_memory(pool: t.Memory) -> types_pb2.Memory:
    """Return a Memory message with the bytes of the pool."""
    return types_pb2.Memory(inline=pool.view.tobytes())


def read_inline_memory(message: types_pb2.Memory) -> t.Memory | t.UnsetUnion:
    """Return the read-only pool of a Memory message with inline bytes, or UnsetUnion for any other kind."""
    if message.WhichOneof("memory") != "inline":
        return t.UnsetUnion()
    return t.Memory.of(message.inline)


def _enum(_: type[_E], number: int) -> _E:
    """Return a number as an open protobuf enum. The enum takes any int32, but its type annotation does not."""
    return number  # type: ignore[return-value]


# ---- Model ----------------------------------------------------------------------------------------------


def location_message(location: t.DataLocation) -> types_pb2.DataLocation:
    """Convert a DataLocation to a message."""
    return types_pb2.DataLocation(
        pool_index=location.pool_index, offset=location.offset, length=location.length, padding=location.padding
    )


def to_location(message: types_pb2.DataLocation) -> t.DataLocation:
    """Convert a message to a DataLocation."""
    return t.DataLocation(message.pool_index, message.offset, message.length, message.padding)


def _extra_params_message(params: t.ExtraParams) -> types_pb2.OperandExtraParams | None:
    match params:
        case t.SymmPerChannelQuantParams():
            quant = types_pb2.SymmPerChannelQuantParams(scales=params.scales, channel_dim=params.channel_dim)
            return types_pb2.OperandExtraParams(channel_quant=quant)
        case t.ExtensionParams():
            return types_pb2.OperandExtraParams(extension=params.data)
        case t.UnsetUnion():
            return types_pb2.OperandExtraParams()
        case None:
            return None


def _to_extra_params(message: types_pb2.OperandExtraParams) -> t.ExtraParams:
    match message.WhichOneof("params"):
        case "channel_quant":
            quant = message.channel_quant
            return t.SymmPerChannelQuantParams(tuple(quant.scales), quant.channel_dim)
        case "extension":
            return t.ExtensionParams(message.extension)
        case _:
            return t.UnsetUnion()


def operand_message(operand: t.Operand) -> types_pb2.Operand:
    """Convert an Operand to a message."""
    return types_pb2.Operand(
        type=_enum(enums_pb2.OperandType.ValueType, operand.type),
        dimensions=operand.dimensions,
        scale=operand.scale,
        zero_point=operand.zero_point,
        lifetime=_enum(enums_pb2.OperandLifeTime.ValueType, operand.lifetime),
        location=location_message(operand.location),
        extra_params=_extra_params_message(operand.extra_params),
    )


def to_operand(message: types_pb2.Operand) -> t.Operand:
    """Convert a message to an Operand."""
    return t.Operand(
        message.type,
        tuple(message.dimensions),
        message.scale,
        message.zero_point,
        message.lifetime,
        to_location(message.location),
        _to_extra_params(message.extra_params) if message.HasField("extra_params") else None,
    )


def _subgraph_message(subgraph: t.Subgraph) -> types_pb2.Subgraph:
    return types_pb2.Subgraph(
        operands=map(operand_message, subgraph.operands),
        operations=(
            types_pb2.Operation(
                type=_enum(enums_pb2.OperationType.ValueType, operation.type),
                inputs=operation.inputs,
                outputs=operation.outputs,
            )
            for operation in subgraph.operations
        ),
        input_indexes=subgraph.input_indexes,
        output_indexes=subgraph.output_indexes,
    )


def take_turns(elements: Sequence[_T], proceed: Callable[[], None]) -> Iterator[_T]:
    """Yield the elements of a long list, with a call of `proceed` before each few of them."""
    for start in range(0, len(elements), _FEW):
        proceed()
        yield from elements[start : start + _FEW]


def _to_subgraph(message: types_pb2.Subgraph, proceed: Callable[[], None]) -> t.Subgraph:
    return t.Subgraph(
        tuple(map(to_operand, take_turns(message.operands, proceed))),
        tuple(t.Operation(o.type, tuple(o.inputs), tuple(o.outputs)) for o in take_turns(message.operations, proceed)),
        tuple(message.input_indexes),
        tuple(message.output_indexes),
    )


def extension_names_message(names: Iterable[t.ExtensionNameAndPrefix]) -> list[types_pb2.ExtensionNameAndPrefix]:
    """Convert a table of extension names to messages."""
    return [types_pb2.ExtensionNameAndPrefix(name=name.name, prefix=name.prefix) for name in names]


def to_extension_names(messages: Iterable[types_pb2.ExtensionNameAndPrefix]) -> tuple[t.ExtensionNameAndPrefix, ...]:
    """Convert messages to a table of extension names."""
    return tuple(t.ExtensionNameAndPrefix(message.name, message.prefix) for message in messages)


def model_message(model: t.Model, send: SendMemory = inline_memory) -> types_pb2.Model:
    """Convert a Model to a message. `send` makes the messages of its pools. Names are not transmitted."""
    return types_pb2.Model(
        main=_subgraph_message(model.main),
        referenced=map(_subgraph_message, model.referenced),
        operand_values=bytes(model.operand_values),
        pools=[types_pb2.Memory() if isinstance(pool, t.UnsetUnion) else send(pool) for pool in model.pools],
        relax_computation_float32_to_float16=model.relax_computation_float32_to_float16,
        extension_name_to_prefix=extension_names_message(model.extension_name_to_prefix),
    )


def to_model(
    message: types_pb2.Model, read: ReadMemory = read_inline_memory, proceed: Callable[[], None] = lambda: None
) -> t.Model:
    """Convert a message to a Model. `read` returns its pools, and `proceed` is called between steps."""
    return t.Model(
        _to_subgraph(message.main, proceed),
        tuple(_to_subgraph(referenced, proceed) for referenced in message.referenced),
        message.operand_values,
        tuple(map(read, message.pools)),
        message.relax_computation_float32_to_float16,
        to_extension_names(message.extension_name_to_prefix),
    )


# ---- Request and result ---------------------------------------------------------------------------------


def _argument_message(argument: t.RequestArgument) -> types_pb2.RequestArgument:
    return types_pb2.RequestArgument(
        has_no_value=argument.has_no_value,
        location=location_message(argument.location),
        dimensions=argument.dimensions,
    )


def _to_argument(message: types_pb2.RequestArgument) -> t.RequestArgument:
    return t.RequestArgument(message.has_no_value, to_location(message.location), tuple(message.dimensions))


def _pool_message(pool: t.RequestMemoryPool, send: SendMemory) -> types_pb2.RequestMemoryPool:
    match pool:
        case t.Memory():
            return types_pb2.RequestMemoryPool(pool=send(pool))
        case t.BufferToken():
            return types_pb2.RequestMemoryPool(token=pool.token)
        case t.ReturnedPool():
            return types_pb2.RequestMemoryPool(returned=types_pb2.ReturnedPool(size=pool.size))
        case t.UnsetUnion():
            return types_pb2.RequestMemoryPool()


def _to_pool(message: types_pb2.RequestMemoryPool, read: ReadMemory) -> t.RequestMemoryPool:
    match message.WhichOneof("kind"):
        case "pool":
            return read(message.pool)
        case "token":
            return t.BufferToken(message.token)
        case "returned":
            return t.ReturnedPool(message.returned.size if message.returned.HasField("size") else None)
        case _:
            return t.UnsetUnion()


def request_message(request: t.Request, send: SendMemory = inline_memory) -> types_pb2.Request:
    """Convert a Request to a message. `send` makes the messages of its pools."""
    return types_pb2.Request(
        inputs=map(_argument_message, request.inputs),
        outputs=map(_argument_message, request.outputs),
        pools=[_pool_message(pool, send) for pool in request.pools],
    )


def to_request(message: types_pb2.Request, read: ReadMemory = read_inline_memory) -> t.Request:
    """Convert a message to a Request. `read` returns its pools."""
    return t.Request(
        tuple(map(_to_argument, message.inputs)),
        tuple(map(_to_argument, message.outputs)),
        tuple(_to_pool(pool, read) for pool in message.pools),
    )


def timing_message(timing: t.Timing) -> types_pb2.Timing:
    """Convert a Timing to a message."""
    return types_pb2.Timing(time_on_device_ns=timing.time_on_device_ns, time_in_driver_ns=timing.time_in_driver_ns)


def to_timing(message: types_pb2.Timing) -> t.Timing:
    """Convert a message to a Timing."""
    return t.Timing(message.time_on_device_ns, message.time_in_driver_ns)


def put_inline(data: t.Bytes, message: types_pb2.ReturnedOutput) -> None:
    """Store the bytes of an output in its message."""
    message.inline = data.tobytes()


def result_message(result: t.ExecutionResult, send: SendOutput = put_inline) -> types_pb2.ExecutionResult:
    """Convert an ExecutionResult to a message. `send` fills the messages of returned outputs."""
    message = types_pb2.ExecutionResult()
    message.output_sufficient_size = result.output_sufficient_size
    message.output_shapes.extend(map(output_shape_message, result.output_shapes))
    timing = message.timing
    timing.time_on_device_ns = result.timing.time_on_device_ns
    timing.time_in_driver_ns = result.timing.time_in_driver_ns
    for data in result.returned:
        output = message.returned.add()
        if data is not None:
            send(data, output)
    if result.spans:
        message.spans.extend(map(span_message, result.spans))
        message.dropped_spans = result.dropped_spans
    return message


def output_shape_message(shape: t.OutputShape) -> types_pb2.OutputShape:
    """Convert an OutputShape to a message."""
    return types_pb2.OutputShape(dimensions=shape.dimensions, is_sufficient=shape.is_sufficient)


def span_message(span: t.Span) -> types_pb2.Span:
    """Convert a Span to a message."""
    return types_pb2.Span(
        kind=_enum(types_pb2.SpanKind.ValueType, span.kind),
        name=span.name,
        backend=span.backend,
        subgraph=span.subgraph,
        operations=span.operations,
        start_ns=span.start_ns,
        duration_ns=span.duration_ns,
    )


def to_span(message: types_pb2.Span) -> t.Span:
    """Convert a message to a Span."""
    return t.Span(
        message.kind,
        message.name,
        message.backend,
        message.subgraph,
        tuple(message.operations),
        message.start_ns,
        message.duration_ns,
    )


def read_inline_output(message: types_pb2.ReturnedOutput) -> t.Bytes | None:
    """Return the inline bytes of an output message, or None if it has none."""
    return np.frombuffer(message.inline, np.uint8) if message.WhichOneof("data") == "inline" else None


def to_result(
    message: types_pb2.ExecutionResult,
    read: Callable[[types_pb2.ReturnedOutput], t.Bytes | None] = read_inline_output,
) -> t.ExecutionResult:
    """Convert a message to an ExecutionResult. `read` returns the bytes of returned outputs."""
    return t.ExecutionResult(
        message.output_sufficient_size,
        tuple(t.OutputShape(tuple(shape.dimensions), shape.is_sufficient) for shape in message.output_shapes),
        to_timing(message.timing),
        tuple(map(read, message.returned)),
        tuple(map(to_span, message.spans)),
        message.dropped_spans,
    )


# ---- Configuration --------------------------------------------------------------------------------------


def hints_message(hints: Sequence[t.TokenValuePair]) -> list[types_pb2.TokenValuePair]:
    """Convert hints to messages."""
    return [types_pb2.TokenValuePair(token=hint.token, value=hint.value) for hint in hints]


def to_hints(messages: Iterable[types_pb2.TokenValuePair]) -> tuple[t.TokenValuePair, ...]:
    """Convert messages to hints."""
    return tuple(t.TokenValuePair(message.token, message.value) for message in messages)


def execution_config_message(config: t.ExecutionConfig) -> types_pb2.ExecutionConfig:
    """Convert an ExecutionConfig to a message."""
    return types_pb2.ExecutionConfig(
        measure_timing=config.measure_timing,
        loop_timeout_duration_ns=config.loop_timeout_duration_ns,
        execution_hints=hints_message(config.execution_hints),
        extension_name_to_prefix=extension_names_message(config.extension_name_to_prefix),
        profile=config.profile,
    )


def to_execution_config(message: types_pb2.ExecutionConfig) -> t.ExecutionConfig:
    """Convert a message to an ExecutionConfig."""
    return t.ExecutionConfig(
        message.measure_timing,
        message.loop_timeout_duration_ns if message.HasField("loop_timeout_duration_ns") else t.OMITTED,
        to_hints(message.execution_hints),
        to_extension_names(message.extension_name_to_prefix),
        message.profile,
    )


# ---- Description of a device ----------------------------------------------------------------------------


def _to_performance(message: types_pb2.PerformanceInfo) -> t.PerformanceInfo:
    return t.PerformanceInfo(message.exec_time, message.power_usage)


def capabilities_message(capabilities: t.Capabilities) -> types_pb2.Capabilities:
    """Convert Capabilities to a message."""
    return types_pb2.Capabilities(**asdict(capabilities))


def to_capabilities(message: types_pb2.Capabilities) -> t.Capabilities:
    """Convert a message to Capabilities."""
    return t.Capabilities(
        _to_performance(message.relaxed_float32_to_float16_performance_scalar),
        _to_performance(message.relaxed_float32_to_float16_performance_tensor),
        tuple(t.OperandPerformance(entry.type, _to_performance(entry.info)) for entry in message.operand_performance),
        _to_performance(message.if_performance),
        _to_performance(message.while_performance),
    )


def extension_message(extension: t.Extension) -> types_pb2.Extension:
    """Convert an Extension to a message."""
    return types_pb2.Extension(**asdict(extension))


def to_extension(message: types_pb2.Extension) -> t.Extension:
    """Convert a message to an Extension."""
    return t.Extension(
        message.name,
        tuple(t.ExtensionOperandTypeInformation(o.type, o.is_tensor, o.byte_size) for o in message.operand_types),
    )


_BACKEND_STATES: dict[int, t.BackendState] = {state.value: state for state in t.BackendState}


def to_backend_info(message: device_pb2.BackendInfo) -> t.BackendInfo:
    """Convert a message to a BackendInfo. A state that this client does not know is UNSPECIFIED."""
    return t.BackendInfo(
        message.id,
        message.version,
        _BACKEND_STATES.get(message.state, t.BackendState.UNSPECIFIED),
        message.reason,
        message.origin,
        message.api_version,
        dict(message.capabilities),
        message.quarantined_models,
        dict(message.hardware),
    )


def to_model_entry(message: models_pb2.ModelEntry) -> t.ModelEntry:
    """Convert a message to a ModelEntry. A state that this client does not know is UNSPECIFIED."""
    state = _NAMED_MODEL_STATES.get(message.state, t.NamedModelState.UNSPECIFIED)
    return t.ModelEntry(message.name, message.version, state, message.reason)


_NAMED_MODEL_STATES: dict[int, t.NamedModelState] = {state.value: state for state in t.NamedModelState}


# ---- Driver-managed buffers -----------------------------------------------------------------------------


def to_buffer_desc(message: types_pb2.BufferDesc) -> t.BufferDesc:
    """Convert a message to a BufferDesc."""
    return t.BufferDesc(tuple(message.dimensions))


def buffer_role_message(role: t.BufferRole) -> types_pb2.BufferRole:
    """Convert a BufferRole to a message."""
    return types_pb2.BufferRole(model_index=role.model_index, io_index=role.io_index, probability=role.probability)


def to_buffer_role(message: types_pb2.BufferRole) -> t.BufferRole:
    """Convert a message to a BufferRole."""
    return t.BufferRole(message.model_index, message.io_index, message.probability)


# ---- Placement ------------------------------------------------------------------------------------------


def placement_message(placement: t.Placement) -> types_pb2.Placement:
    """Convert a Placement to a message."""
    return types_pb2.Placement(
        partitions=(
            types_pb2.Partition(subgraph=p.subgraph, backend=p.backend, operations=p.operations)
            for p in placement.partitions
        ),
        operations=(
            types_pb2.OperationPlacement(
                subgraph=o.subgraph,
                operation=o.operation,
                type=_enum(enums_pb2.OperationType.ValueType, o.type),
                backend=o.backend,
                refusals=(types_pb2.Refusal(backend=r.backend, reason=r.reason, nearest=r.nearest) for r in o.refusals),
            )
            for o in placement.operations
        ),
    )


def to_placement(message: types_pb2.Placement) -> t.Placement:
    """Convert a message to a Placement."""
    return t.Placement(
        tuple(t.Partition(p.subgraph, p.backend, tuple(p.operations)) for p in message.partitions),
        tuple(
            t.OperationPlacement(
                o.subgraph,
                o.operation,
                o.type,
                o.backend,
                tuple(t.Refusal(r.backend, r.reason, r.nearest) for r in o.refusals),
            )
            for o in message.operations
        ),
    )


def cache_outcome_message(outcome: t.CacheOutcome) -> device_pb2.CacheOutcome:
    """Convert a CacheOutcome to a message."""
    return device_pb2.CacheOutcome(state=_enum(device_pb2.CacheState.ValueType, outcome.state), reason=outcome.reason)


_CACHE_STATES: dict[int, int] = {state.value: state for state in t.CacheState}
"""The numbers that have a name, which become a CacheState."""


def to_cache_counters(message: cache_pb2.CacheCounters) -> t.CacheCounters:
    """Convert a message to CacheCounters."""
    return t.CacheCounters(message.hits, message.misses, message.saves, message.evictions, message.set_aside)


def to_cache_outcome(message: device_pb2.CacheOutcome) -> t.CacheOutcome:
    """Convert a message to a CacheOutcome."""
    return t.CacheOutcome(_CACHE_STATES.get(message.state, message.state), message.reason)


def extension_types_message(
    types: Mapping[int, t.ExtensionOperandTypeInformation], operands: Iterable[t.Operand]
) -> list[device_pb2.ModelExtensionType]:
    """Convert the types of extensions that operands have to messages. `types` has them by their number in the model."""
    used = sorted({operand.type for operand in operands} & types.keys())
    return [
        device_pb2.ModelExtensionType(type=number, is_tensor=types[number].is_tensor, byte_size=types[number].byte_size)
        for number in used
    ]


def to_extension_types(message: device_pb2.Notify) -> dict[int, t.ExtensionOperandTypeInformation]:
    """Return the types of extensions in a notify message, by their number in the model."""
    return {
        o.type: t.ExtensionOperandTypeInformation(o.type & t.TYPE_BASE_MAX, o.is_tensor, o.byte_size)
        for o in message.extension_types
        if o.byte_size > 0
    }


def to_notified_operands(message: device_pb2.Notify) -> tuple[tuple[t.Operand, ...], tuple[t.Operand, ...]]:
    """Return the inputs and outputs of the prepared model that a notify message describes."""
    return tuple(map(to_operand, message.inputs)), tuple(map(to_operand, message.outputs))
