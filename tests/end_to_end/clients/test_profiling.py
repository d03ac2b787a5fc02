"""Profiled executions over the contract, with both clients and both transports."""

import json
from collections.abc import Sequence

import numpy as np
import pytest

import nnhal
import nnhal.aio
from nnhal.builder import ModelBuilder
from nnhal.client.core.profile import GRPC, SHARED_MEMORY, ExecutionProfile
from nnhal.client.core.session import Transport
from nnhal.client.shm.result import ShmResult
from nnhal.profiling import trace
from nnhal.types import AnyArray, Model, Operand, OperandType, OperationType, SpanKind
from tests.driver.control_flow_models import counts, f, less_than, loop
from tests.end_to_end.support.models import chain
from tests.end_to_end.support.service_process import Service
from tests.trace_format import check_trace

X = np.ones(2, np.float32)
TRANSPORTS: list[tuple[Transport, str]] = [("auto", SHARED_MEMORY), ("grpc", GRPC)]
STAGES = {
    SHARED_MEMORY: ["encode", "upload", "send", "wait", "download"],
    GRPC: ["encode", "send", "wait", "decode"],
}


def profile(service: Service, transport: Transport, model: Model, inputs: Sequence[AnyArray]) -> ExecutionProfile:
    with (
        nnhal.connect(service.target, transport=transport) as device,
        device.prepare(model).result() as prepared,
    ):
        return prepared.profile(inputs)


def doubling(length: int) -> Model:
    """Return a model that doubles a vector."""
    b = ModelBuilder()
    x = b.input(OperandType.TENSOR_FLOAT32, [length])
    b.output(b.add(OperationType.ADD, x, x, 0, output=Operand(OperandType.TENSOR_FLOAT32, (length,))))
    return b.build()


def stages(result: ExecutionProfile) -> list[str]:
    return [span.name for span in result.spans if span.kind == SpanKind.STAGE]


@pytest.mark.parametrize(("transport", "name"), TRANSPORTS)
def test_spans_reach_the_client(service: Service, transport: Transport, name: str) -> None:
    with (
        nnhal.connect(service.target, transport=transport) as device,
        device.prepare(chain(3)).result() as prepared,
    ):
        profile = prepared.profile({"x": X})
        assert profile.outputs["y"].tolist() == [8, 8]
        partition_spans = [span for span in profile.spans if span.kind == SpanKind.PARTITION]
        assert [(span.backend, span.operations) for span in partition_spans] == [
            (partition.backend, partition.operations) for partition in prepared.placement.partitions
        ]
        assert 0 < partition_spans[0].duration_ns <= profile.outputs.timing.time_on_device_ns
        assert [span.name for span in profile.spans if span.kind == SpanKind.OPERATION] == ["ADD"] * 3
        assert stages(profile) == ["decode", "queue", "execute", "encode"]
        assert profile.transport == name
        assert [span.name for span in profile.client_spans] == STAGES[name]
        assert prepared.execute([X])["y"].tolist() == [8, 8], "an ordinary execution afterwards"


@pytest.mark.parametrize(("transport", "name"), TRANSPORTS)
async def test_spans_reach_the_asyncio_client(service: Service, transport: Transport, name: str) -> None:
    async with nnhal.aio.connect(service.target, transport=transport) as device:
        prepared = await device.prepare(chain(3))
        profile = await prepared.profile([X])
        assert profile.outputs["y"].tolist() == [8, 8]
        assert {span.operations for span in profile.spans if span.kind == SpanKind.PARTITION} == {(0, 1, 2)}
        assert stages(profile) == ["decode", "queue", "execute", "encode"]
        assert [span.name for span in profile.client_spans] == STAGES[name]


@pytest.mark.parametrize(("transport", "name"), TRANSPORTS)
def test_trace_shows_client_service_partition_and_operation(service: Service, transport: Transport, name: str) -> None:
    """Spans of the service lie within the client's time for sending and waiting, on one time line."""
    model = chain(2)
    with (
        nnhal.connect(service.target, transport=transport) as device,
        device.prepare(model).result() as prepared,
    ):
        events = check_trace(json.dumps(trace([prepared.profile([X]), prepared.profile([X])], model)))
    for number in range(2):
        call, handled = (event for event in events if event["name"] == f"execute {number}")
        assert call["ts"] <= handled["ts"] <= handled["ts"] + handled["dur"] <= call["ts"] + call["dur"]
    assert {event["cat"] for event in events} >= {"client", "transfer", "service", "partition", "operation"}
    assert sum(event["cat"] == "operation" for event in events) == 4


@pytest.mark.parametrize(("transport", "name"), TRANSPORTS)
def test_spans_that_exceed_a_packet_arrive_too(service: Service, transport: Transport, name: str) -> None:
    result = profile(service, transport, loop(less_than(), counts()), [f(0), f(900)])
    assert result.outputs[0].tolist() == [900]
    assert sum(span.kind == SpanKind.PARTITION for span in result.spans) == 1 + 901 + 900
    assert result.dropped == 0


def test_large_tensors_are_uploaded_and_downloaded(service: Service) -> None:
    x = np.arange(2**20, dtype=np.float32)
    result = profile(service, "grpc", doubling(x.size), [x])
    np.testing.assert_array_equal(result.outputs[0], 2 * x)
    names = [span.name for span in result.client_spans]
    assert names == ["encode", "upload", "encode", "send", "wait", "download", "decode"]


def test_service_that_cannot_profile_over_shared_memory_is_asked_over_grpc(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ShmResult, "is_profiled", False)
    result = profile(service, "auto", chain(3), [X])
    assert result.transport == GRPC
    assert stages(result) == ["decode", "queue", "execute", "encode"]


@pytest.mark.parametrize("transport", ["auto", "grpc"])
def test_failing_execution_raises_the_error(service: Service, transport: Transport) -> None:
    endless = loop(less_than(), counts())
    with (
        nnhal.connect(service.target, transport=transport) as device,
        device.prepare(endless).result() as prepared,
    ):
        with pytest.raises(nnhal.HalError, match="deadline"):
            prepared.profile([f(0), f(1e9)], deadline=0.05)
        assert prepared.profile([f(0), f(2)]).outputs[0].tolist() == [2]


@pytest.mark.parametrize(("transport", "name"), TRANSPORTS)
def test_spans_of_fenced_executions_reach_the_client(service: Service, transport: Transport, name: str) -> None:
    with nnhal.connect(service.target, transport=transport) as device, device.prepare(chain(3)).result() as prepared:
        execution = prepared.execute_fenced({"x": X}, measure_timing=True, profile=True)
        assert execution.result(60)["y"].tolist() == [8, 8]
        assert [span.name for span in execution.spans if span.kind == SpanKind.OPERATION] == ["ADD"] * 3
        fenced_stages = [span.name for span in execution.spans if span.kind == SpanKind.STAGE]
        assert fenced_stages == ["decode", "fences", "queue", "execute"]
        assert execution.timing.launched.time_on_device_ns > 0
        plain = prepared.execute_fenced({"x": X})
        plain.result(60)
        assert plain.spans == ()


async def test_spans_of_fenced_executions_reach_the_asyncio_client(service: Service) -> None:
    async with nnhal.aio.connect(service.target) as device, await device.prepare(chain(3)) as prepared:
        execution = await prepared.execute_fenced({"x": X}, profile=True)
        assert (await execution.result(60))["y"].tolist() == [8, 8]
        assert [span.name for span in await execution.spans() if span.kind == SpanKind.OPERATION] == ["ADD"] * 3
