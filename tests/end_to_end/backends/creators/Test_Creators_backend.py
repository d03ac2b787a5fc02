"""Plug-in of several files. Its class is in a sibling, and the other siblings register creators with it."""

from nnhal_backend.v1 import API_VERSION, Backend

from . import creators_of_extension, creators_of_hal
from .creators_base import Creators

MODULES = creators_of_extension, creators_of_hal


def GetBackendId() -> str:
    """Return the id of the backend."""
    return Creators.id


def GetVersion() -> tuple[int, int]:
    """Return the version of the interface."""
    return API_VERSION


def BackendFactory() -> Backend:
    """Create a backend."""
    return Creators()
