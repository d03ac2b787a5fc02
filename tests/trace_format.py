"""Check of traces against Google's Trace Event Format, which Perfetto and Chrome read."""

import json
from collections import defaultdict
from typing import Any

_DURATION_FIELDS = {"ph", "name", "cat", "pid", "tid", "ts", "dur", "args"}
_METADATA_FIELDS = {"ph", "name", "pid", "tid", "args"}
_ROUNDING_US = 1e-3
"""Times are nanoseconds as fractions of microseconds."""


def check_trace(text: str) -> list[dict[str, Any]]:
    """Check the JSON object form of a trace, and return its complete events (phase X).

    Events of a thread must be nested, otherwise Perfetto drops some. Each process and thread has a name.
    """
    document = json.loads(text)
    assert set(document) <= {"traceEvents", "displayTimeUnit", "otherData"}
    assert document["displayTimeUnit"] in ("ms", "ns")
    named: set[tuple[str, int, int]] = set()
    events = []
    for event in document["traceEvents"]:
        assert isinstance(event["pid"], int) and isinstance(event["tid"], int)
        assert isinstance(event["name"], str) and isinstance(event["args"], dict)
        if event["ph"] == "M":
            assert set(event) == _METADATA_FIELDS and event["name"] in ("process_name", "thread_name")
            assert isinstance(event["args"]["name"], str)
            named.add((event["name"], event["pid"], 0 if event["name"] == "process_name" else event["tid"]))
        else:
            assert event["ph"] == "X", "only metadata and complete events are written"
            assert set(event) == _DURATION_FIELDS and isinstance(event["cat"], str)
            assert event["ts"] >= 0 and event["dur"] >= 0
            events.append(event)
    for event in events:
        assert ("process_name", event["pid"], 0) in named
        assert ("thread_name", event["pid"], event["tid"]) in named
    _check_nesting(events)
    return events


def _check_nesting(events: list[dict[str, Any]]) -> None:
    threads: dict[tuple[int, int], list[dict[str, Any]]] = defaultdict(list)
    for event in events:
        threads[event["pid"], event["tid"]].append(event)
    for thread in threads.values():
        open_until: list[float] = []
        for event in sorted(thread, key=lambda event: (event["ts"], -event["dur"])):
            while open_until and open_until[-1] <= event["ts"] + _ROUNDING_US:
                open_until.pop()
            end = event["ts"] + event["dur"]
            assert not open_until or end <= open_until[-1] + _ROUNDING_US, f"{event['name']} is not nested"
            open_until.append(end)
