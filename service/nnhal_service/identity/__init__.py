"""Identities of clients: who calls, how that is known, and what they may do and use."""
