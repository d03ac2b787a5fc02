"""Metrics: recording in workers, totals over all of them, and the formats of Prometheus (docs/metrics.md)."""
