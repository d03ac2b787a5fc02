"""Same-machine transport, as far as client and service share it."""
