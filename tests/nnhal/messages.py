"""Messages for tests of templates and caches."""

from nnhal.v1 import types_pb2


def request(*values: bytes) -> types_pb2.Request:
    """Return a request with a pool for each value, and one for returned outputs."""
    pools = [types_pb2.RequestMemoryPool(pool=types_pb2.Memory(inline=value)) for value in values]
    returned = types_pb2.RequestMemoryPool(returned=types_pb2.ReturnedPool())
    location = types_pb2.DataLocation(pool_index=1, length=70000)
    inputs = [types_pb2.RequestArgument(location=location, dimensions=[3, 5])]
    return types_pb2.Request(inputs=inputs, pools=[*pools, returned])
