"""Open Inference Protocol over HTTP: requests become calls of workers over gRPC, which decide everything."""
