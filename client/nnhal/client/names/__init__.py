"""Models that the service has by name."""
