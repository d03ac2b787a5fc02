"""gRPC service in front of the driver: translation, identity, sessions and limits."""
