"""Synchronous client. Modules whose first line says so are generated from `nnhal.client.aio`."""
