"""Capabilities: measured performance figures of a device."""
