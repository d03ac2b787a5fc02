"""LiteRT itself: imported when the first backend is made, so that everything else works without it."""

import ctypes
import importlib
import os
from collections.abc import Callable
from types import ModuleType
from typing import Any

from nnhal.types import AnyArray

_LARGE = 32 * 2**20
"""Bytes of a model from which it is worth while to give its memory back to the system at once."""


class EngineMissingError(ImportError):
    """The package ai-edge-litert cannot be imported."""


def schema() -> ModuleType:
    """The object API of the TFLite schema.

    Raises:
        EngineMissingError: the package is not installed.
    """
    return _module("schema_py_generated")


def available() -> None:
    """Checks that the engine can be used.

    Raises:
        EngineMissingError: the package is not installed.
    """
    _module("interpreter")
    schema()


def version() -> str:
    """The engine's own version.

    Raises:
        EngineMissingError: the package is not installed.
    """
    return str(_package().__version__)


class Interpreter:
    """One interpreter of a model; serves one call at a time.

    Args:
        model: the flatbuffer, or the path of its file.
        threads: that one call may use.

    Raises:
        RuntimeError: the engine refuses the model, or cannot allocate its tensors.
    """

    def __init__(self, model: bytes | str, threads: int) -> None:
        self.threads = threads
        in_memory = isinstance(model, bytes)
        self._large = (len(model) if in_memory else os.path.getsize(model)) >= _LARGE
        self._engine: Any = None
        self._views: dict[int, Callable[[], AnyArray]] = {}
        try:
            self._engine = _module("interpreter").Interpreter(
                **{"model_content" if in_memory else "model_path": model}, num_threads=threads
            )
            self._engine.allocate_tensors()
        except ValueError as error:  # what the engine's own binding makes of some refusals
            raise RuntimeError(str(error)) from error

    def view(self, tensor: int) -> AnyArray:
        """The engine's memory of a tensor. It must not be held during a call of `invoke`."""
        found = self._views.get(tensor)
        if found is None:
            found = self._views[tensor] = self._engine.tensor(tensor)
        return found()

    def invoke(self) -> None:
        """Runs the model. Other Python threads run meanwhile.

        Raises:
            RuntimeError: an operator failed.
        """
        self._engine.invoke()

    def __del__(self) -> None:
        # the engine packs weights into memory of its own: as much again as the model, which malloc would keep
        if getattr(self, "_large", False):
            self._engine = None
            self._views.clear()
            ctypes.CDLL(None).malloc_trim(0)


def _package() -> ModuleType:
    _module("interpreter")
    return importlib.import_module("ai_edge_litert")


def _module(name: str) -> ModuleType:
    try:
        return importlib.import_module(f"ai_edge_litert.{name}")
    except ImportError as error:
        raise EngineMissingError(f"backend CpuAcc needs the package ai-edge-litert: {error}") from error
