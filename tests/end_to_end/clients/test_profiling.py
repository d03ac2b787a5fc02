"""Profiled executions over the contract, with both clients."""

import numpy as np

import nnhal
import nnhal.aio
from nnhal.profiling import trace
from nnhal.types import SpanKind
from tests.end_to_end.clients.test_aio import chain
from tests.end_to_end.support.service_process import Service

X = np.ones(2, np.float32)


def test_spans_reach_the_client(service: Service) -> None:
    with nnhal.connect(service.target) as device, device.prepare(chain(3)).result() as prepared:
        profile = prepared.profile({"x": X})
        assert profile.outputs["y"].tolist() == [8, 8]
        partition_spans = [span for span in profile.spans if span.kind == SpanKind.PARTITION]
        assert [(span.backend, span.operations) for span in partition_spans] == [
            (partition.backend, partition.operations) for partition in prepared.placement.partitions
        ]
        assert 0 < partition_spans[0].duration_ns <= profile.outputs.timing.time_on_device_ns


async def test_spans_reach_the_asyncio_client(service: Service) -> None:
    async with nnhal.aio.connect(service.target) as device:
        prepared = await device.prepare(chain(3))
        profile = await prepared.profile([X])
        assert profile.outputs["y"].tolist() == [8, 8]
        assert {span.operations for span in profile.spans if span.kind == SpanKind.PARTITION} == {(0, 1, 2)}
        events = trace([profile.spans, profile.spans])["traceEvents"]
        assert [event["pid"] for event in events if event["ph"] == "X" and event["cat"] == "partition"] == [0, 1]
