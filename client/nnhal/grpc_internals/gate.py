"""Gate to the private parts of grpcio: it opens only if they are as expected.

Another release may rename them, or change what they take. Then, and with NNHAL_PLAIN_GRPC=1, everything works with
the public interface of gRPC alone: calls take longer, and nothing else changes for users.
"""

import inspect
import logging
import os
from collections.abc import Mapping
from importlib import import_module
from operator import attrgetter
from typing import Any

import grpc

SWITCH = "NNHAL_PLAIN_GRPC"
FIRST, LAST = (1, 83), (1, 85)
"""Releases of grpcio that this works with. pyproject.toml demands them, and `make test-versions` tests with both."""

_log = logging.getLogger("nnhal.grpc")


def private_parts(functions: Mapping[str, str], members: Mapping[str, str]) -> dict[str, Any]:
    """Return private parts of grpcio by name, or nothing if one of them is not as expected. The log says which.

    Args:
        functions: the parameters of functions and constructors, by name within the package `grpc`.
        members: names in modules, and attributes of objects, by the name of the module or class.
    """
    try:
        _check_release()
        parts = {name: _load(name) for name in (*members, *functions)}
        for name, parameters in functions.items():
            _compare(f"the parameters of {name}", list(inspect.signature(parts[name]).parameters), parameters.split())
        for name, expected in members.items():
            known = {*dir(parts[name]), *getattr(parts[name], "__annotations__", ())}
            _compare(f"of the members of {name}", sorted(known & {*expected.split()}), sorted(expected.split()))
    except (ImportError, AttributeError, TypeError, ValueError) as problem:
        _log.debug("only the public interface of gRPC is used: %s", problem)
        return {}
    return parts


def _check_release() -> None:
    """Check that private parts are wanted, and the release of grpcio.

    Raises:
        ImportError: they are turned off, or the release is unknown.
    """
    if os.environ.get(SWITCH, "").lower() in ("1", "true"):
        raise ImportError(f"{SWITCH} is set")
    release = tuple(int(number) for number in grpc.__version__.split(".")[:2])
    if not FIRST <= release <= LAST:
        raise ImportError(f"grpcio {grpc.__version__} is unknown; expected {FIRST} to {LAST}")


def _load(name: str) -> Any:
    """Return a module within `grpc`, or a member of one."""
    module = "_cython.cygrpc" if name.startswith("_cython.cygrpc") else name.partition(".")[0]
    import_module(f"grpc.{module}")
    return attrgetter(name)(grpc)


def _compare(subject: str, found: list[str], expected: list[str]) -> None:
    if found != expected:
        raise TypeError(f"{subject}, found {' '.join(found)}; expected {' '.join(expected)}")
