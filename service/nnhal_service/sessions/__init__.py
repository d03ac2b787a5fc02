"""Sessions, the objects that they own, and their limits."""
