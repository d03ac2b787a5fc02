"""Models with several replicas, for asyncio."""
