"""Traces of calls through OpenTelemetry, which is optional (docs/metrics.md)."""
