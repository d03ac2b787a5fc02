"""Models with several replicas, for the synchronous client."""
