"""Asyncio client. The modules of `nnhal.client.sync` that are generated come from here."""
