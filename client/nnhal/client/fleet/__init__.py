"""Fleets of services, as clients see them: their addresses, and what a client needs."""
