"""Conversion to messages and back keeps every value, valid or not."""

from dataclasses import fields

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from nnhal import types as t
from nnhal import wire
from nnhal.v1 import device_pb2

INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
UINT32 = st.integers(0, 2**32 - 1)
FLOAT = st.floats(width=32, allow_nan=False)
TEXT = st.text(max_size=8)
DIMENSIONS = st.lists(INT32, max_size=5).map(tuple)

LOCATION = st.builds(t.DataLocation, INT32, INT64, INT64, INT64)
EXTRA = st.one_of(
    st.none(),
    st.just(t.UnsetUnion()),
    st.builds(t.ExtensionParams, st.binary(max_size=8)),
    st.builds(t.SymmPerChannelQuantParams, st.lists(FLOAT, max_size=4).map(tuple), INT32),
)
OPERAND = st.builds(t.Operand, INT32, DIMENSIONS, FLOAT, INT32, INT32, LOCATION, EXTRA)
OPERATION = st.builds(t.Operation, INT32, DIMENSIONS, DIMENSIONS)
SUBGRAPH = st.builds(
    t.Subgraph,
    st.lists(OPERAND, max_size=4).map(tuple),
    st.lists(OPERATION, max_size=4).map(tuple),
    DIMENSIONS,
    DIMENSIONS,
)
NAMES = st.lists(st.builds(t.ExtensionNameAndPrefix, TEXT, UINT32), max_size=3).map(tuple)
HINTS = st.lists(st.builds(t.TokenValuePair, INT32, st.binary(max_size=8)), max_size=3).map(tuple)
ARGUMENT = st.builds(t.RequestArgument, st.booleans(), LOCATION, DIMENSIONS)
POOL = st.one_of(
    st.just(t.UnsetUnion()), st.builds(t.BufferToken, INT32), st.builds(t.ReturnedPool, st.one_of(st.none(), INT64))
)


def equal(a: object, b: object) -> bool:
    """Compare two values field by field, and pools by their bytes."""
    if isinstance(a, t.Memory) and isinstance(b, t.Memory):
        return a.view.tobytes() == b.view.tobytes()
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(map(equal, a, b))
    if isinstance(a, (t.Model, t.Request)):
        return type(a) is type(b) and all(equal(getattr(a, f.name), getattr(b, f.name)) for f in fields(a))
    return a == b


@settings(max_examples=50, deadline=None)
@given(SUBGRAPH, st.lists(SUBGRAPH, max_size=2).map(tuple), st.binary(max_size=16), st.booleans(), NAMES)
def test_models(
    main: t.Subgraph,
    referenced: tuple[t.Subgraph, ...],
    values: bytes,
    relaxed: bool,
    names: tuple[t.ExtensionNameAndPrefix, ...],
) -> None:
    pools = (t.Memory.of(b"pool"), t.UnsetUnion())
    model = t.Model(main, referenced, values, pools, relaxed, names)
    assert equal(wire.to_model(wire.model_message(model)), model)


@settings(max_examples=50, deadline=None)
@given(
    st.lists(ARGUMENT, max_size=3).map(tuple),
    st.lists(ARGUMENT, max_size=3).map(tuple),
    st.lists(POOL, max_size=3).map(tuple),
)
def test_requests(
    inputs: tuple[t.RequestArgument, ...],
    outputs: tuple[t.RequestArgument, ...],
    pools: tuple[t.RequestMemoryPool, ...],
) -> None:
    request = t.Request(inputs, outputs, (t.Memory.of(b"x"), *pools))
    assert equal(wire.to_request(wire.request_message(request)), request)


@settings(max_examples=30, deadline=None)
@given(
    st.booleans(), st.lists(st.builds(t.OutputShape, DIMENSIONS, st.booleans()), max_size=3).map(tuple), INT64, INT64
)
def test_results(sufficient: bool, shapes: tuple[t.OutputShape, ...], device: int, driver: int) -> None:
    data = np.arange(5, dtype=np.uint8)
    spans = (t.Span(t.SpanKind.OPERATION, "ADD", "CpuRef", 1, (3,), 5, driver),)
    result = t.ExecutionResult(sufficient, shapes, t.Timing(device, driver), (data, None), spans, 7)
    converted = wire.to_result(wire.result_message(result))
    assert (converted.spans, converted.dropped_spans) == (spans, 7)
    assert (converted.output_sufficient_size, converted.output_shapes, converted.timing) == (
        sufficient,
        shapes,
        result.timing,
    )
    assert converted.returned[1] is None
    np.testing.assert_array_equal(converted.returned[0], data)


@settings(max_examples=30, deadline=None)
@given(st.builds(t.ExecutionConfig, st.booleans(), INT64, HINTS, NAMES, st.booleans()))
def test_execution_configs(config: t.ExecutionConfig) -> None:
    assert wire.to_execution_config(wire.execution_config_message(config)) == config


INFO = st.builds(t.PerformanceInfo, FLOAT, FLOAT)


@settings(max_examples=20, deadline=None)
@given(
    st.builds(
        t.Capabilities,
        INFO,
        INFO,
        st.lists(st.builds(t.OperandPerformance, INT32, INFO), max_size=3).map(tuple),
        INFO,
        INFO,
    )
)
def test_capabilities(capabilities: t.Capabilities) -> None:
    assert wire.to_capabilities(wire.capabilities_message(capabilities)) == capabilities


def test_extensions_and_placements() -> None:
    extension = t.Extension("org.example", (t.ExtensionOperandTypeInformation(7, True, 3),))
    assert wire.to_extension(wire.extension_message(extension)) == extension
    placement = t.Placement(
        (t.Partition(1, "CpuRef", (0, 2)),),
        (t.OperationPlacement(0, 1, 3, "CpuRef", (t.Refusal("Other", "no", "CONV_2D"),)),),
    )
    assert wire.to_placement(wire.placement_message(placement)) == placement


def test_backends() -> None:
    message = device_pb2.BackendInfo(id="Npu", version="2", reason="no device", origin="npu.so", api_version="1.1")
    message.state = device_pb2.BACKEND_STATE_SKIPPED
    message.capabilities["profile"] = True
    info = wire.to_backend_info(message)
    assert info == t.BackendInfo("Npu", "2", t.BackendState.SKIPPED, "no device", "npu.so", "1.1", {"profile": True})
    assert repr(info) == "<nnhal.BackendInfo Npu 2: SKIPPED, npu.so, no device>"
    newer = device_pb2.BackendInfo.FromString(b"\x18\x63")
    assert wire.to_backend_info(newer).state is t.BackendState.UNSPECIFIED


def test_absent_loop_timeout_is_omitted() -> None:
    config = wire.to_execution_config(wire.execution_config_message(t.ExecutionConfig()).__class__())
    assert config.loop_timeout_duration_ns == t.OMITTED
