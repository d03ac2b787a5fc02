"""Caches that spare repeated executions the decoding, validation and encoding of their messages."""
