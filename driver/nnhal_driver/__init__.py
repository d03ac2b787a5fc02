"""Device driver: validation, placement, compilation, execution, scheduling and backends. It knows no transport."""
