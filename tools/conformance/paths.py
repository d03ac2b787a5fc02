"""Paths of execution (checklist 0): each runs a request on a prepared model and says what came of it."""

from collections.abc import Callable

from nnhal.v1 import types_pb2
from tools.conformance.target import Executed, Run, Target

Path = Callable[[Target, bytes, types_pb2.Request, Run], Executed]

PATHS: dict[str, Path] = {
    "SYNC": Target.execute,
    "SYNC-C": Target.execute_with_config,
}
"""By the checklist's code."""
