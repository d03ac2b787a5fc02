"""Requests that clients define once and run many times."""
