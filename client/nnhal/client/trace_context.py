"""Trace context: tells a service which trace of the application a call belongs to, if it uses OpenTelemetry."""

import sys
from typing import Any, TypeAlias

Metadata: TypeAlias = tuple[tuple[str, str], ...]


def trace_parent() -> str | None:
    """Return the trace context of the active span in the form `traceparent` of W3C; None without one."""
    context = _span_context()
    return None if context is None else _parent(context)


def trace_metadata() -> Metadata | None:
    """Return the metadata of a gRPC call that is made within an active span; None without one."""
    context = _span_context()
    if context is None:
        return None
    parent = ("traceparent", _parent(context))
    return (parent, ("tracestate", context.trace_state.to_header())) if context.trace_state else (parent,)


def _span_context() -> Any:
    """Return the context of the active span; None without one.

    An application that traces has imported OpenTelemetry. So nothing is imported here, and others pay next to nothing.
    """
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None:
        return None
    context = trace.get_current_span().get_span_context()
    return context if context.is_valid else None


def _parent(context: Any) -> str:
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{int(context.trace_flags):02x}"
