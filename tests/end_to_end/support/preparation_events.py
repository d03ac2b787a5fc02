"""Events of the stream of a preparation."""

from collections.abc import Iterator

import grpc

from nnhal.v1 import device_pb2

Events = list[device_pb2.PrepareModelEvent]


def read_events(stream: Iterator[device_pb2.PrepareModelEvent]) -> tuple[Events, grpc.RpcError | None]:
    """Return all events of a stream, and the error that ended it."""
    events = []
    try:
        for event in stream:
            events.append(event)
    except grpc.RpcError as error:
        return events, error
    return events, None


def kinds(events: Events) -> list[str | None]:
    """Return the names of events."""
    return [event.WhichOneof("event") for event in events]
