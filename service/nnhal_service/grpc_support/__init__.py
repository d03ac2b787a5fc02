"""Common parts of the gRPC server: errors, handlers, streams, threads and the stall watchdog."""
