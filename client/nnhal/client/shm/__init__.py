"""Client side of the same-machine transport, shared by both clients."""
