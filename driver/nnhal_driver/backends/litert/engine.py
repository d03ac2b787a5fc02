"""LiteRT. It is imported when the first backend is created; everything else works without it."""

import importlib
import os
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

import numpy as np

from nnhal.types import AnyArray
from nnhal_driver.backends.engine_process import Check
from nnhal_driver.mapped_memory import MAPPED_BYTES, trim_memory
from nnhal_driver.operations.call import Shape


class EngineMissingError(ImportError):
    """The package ai-edge-litert cannot be imported."""


def schema() -> ModuleType:
    """Return the object API of the TFLite schema. Raises as `require_engine`."""
    return _module("schema_py_generated")


def require_engine() -> None:
    """Check that the engine can be used.

    Raises:
        EngineMissingError: the package is not installed.
    """
    _module("interpreter")
    schema()


def engine_version() -> str:
    """Return the engine's own version. Raises as `require_engine`."""
    _module("interpreter")
    return str(importlib.import_module("ai_edge_litert").__version__)


def create_interpreter(model: bytes | str, threads: int | None = None) -> Any:
    """Return an interpreter of a flatbuffer, or of its file, with the engine's own interface and without tensors.

    Raises:
        EngineMissingError: the package is not installed.
        ValueError: the engine rejects the model.
    """
    argument = "model_content" if isinstance(model, bytes) else "model_path"
    return _module("interpreter").Interpreter(**{argument: model}, num_threads=threads)


class Interpreter:
    """Interpreter of a flatbuffer, or of its file: an `Engine` in this process.

    Raises:
        RuntimeError: the engine rejects the model, or cannot allocate its tensors.
    """

    def __init__(self, model: bytes | str, threads: int) -> None:
        self.reservation: object = None
        self.threads = threads
        self._large = (len(model) if isinstance(model, bytes) else os.path.getsize(model)) >= MAPPED_BYTES
        self._engine: Any = None
        self._views: dict[int, Callable[[], AnyArray]] = {}
        try:
            self._engine = create_interpreter(model, threads)
            self._allocate()
        except ValueError as error:  # the binding raises it for some invalid models
            raise RuntimeError(str(error)) from error

    def _allocate(self) -> None:
        """Allocate the tensors. The examples of unknown dimensions need not fit each other: `resize` sets them."""
        try:
            self._engine.allocate_tensors()
        except RuntimeError:
            if not any(-1 in each["shape_signature"] for each in self._engine.get_input_details()):
                raise

    def view(self, tensor: int) -> AnyArray:
        """Return the engine's memory of a tensor; a copy without dimensions. Do not keep it during `invoke`."""
        view = self._views.get(tensor)
        if view is None:
            view = self._views[tensor] = self._engine.tensor(tensor)
        try:
            return view()
        except ValueError:  # the binding has no view without elements, or before the allocation
            details = self._engine.get_input_details() + self._engine.get_output_details()
            detail = next(each for each in details if each["index"] == tensor)
            return np.empty(detail["shape"], detail["dtype"])

    def write(self, tensor: int, value: AnyArray) -> None:
        """Set the value of an input."""
        view = self.view(tensor)
        if view.ndim:
            view[...] = value
        else:  # the binding returns a copy
            self._engine.set_tensor(tensor, value)

    def resize(self, shapes: Mapping[int, Shape], check: Check = lambda: None) -> None:
        """Set the shapes of inputs. Raises RuntimeError: the model does not take these."""
        try:
            for tensor, shape in shapes.items():
                self._engine.resize_tensor_input(tensor, shape)
            self._engine.allocate_tensors()
        except ValueError as error:
            raise RuntimeError(str(error)) from error

    def reset_variables(self) -> None:
        """Set the variables of operators to zero, as before the first execution."""
        self._engine.reset_all_variables()

    def invoke(self, check: Check = lambda: None) -> None:
        """Run the model without the GIL. Nothing can end it.

        Raises:
            RuntimeError: an operator failed.
        """
        self._engine.invoke()

    def __del__(self) -> None:
        # the engine packs weights into memory as large as the model, which malloc would keep
        if getattr(self, "_large", False):
            self._engine = None
            self._views.clear()
            trim_memory()


class SubgraphInterpreter:
    """Interpreter of a model whose subgraphs run one by one. They share threads. Serves one call at a time.

    Raises:
        RuntimeError: the engine rejects the model, cannot allocate its tensors, or cannot run single subgraphs.
    """

    def __init__(self, model: bytes | str, threads: int) -> None:
        try:
            # the public interface runs them only through signatures, which copy all inputs and outputs
            self._engine = create_interpreter(model, threads)
            self._engine.allocate_tensors()
            self._subgraphs = self._engine._interpreter
            for number in range(1, self._subgraphs.NumSubgraphs()):
                self._subgraphs.AllocateTensors(number)
        except (ValueError, AttributeError, TypeError) as error:
            raise RuntimeError(str(error)) from error

    def reset_variables(self) -> None:
        """Set the variables of operators in all subgraphs to zero, as before the first execution."""
        self._engine.reset_all_variables()

    def view(self, subgraph: int, tensor: int) -> AnyArray:
        """Return the engine's memory of a tensor. It is valid until the subgraph runs again."""
        view: AnyArray = self._subgraphs.tensor(self._subgraphs, tensor, subgraph)
        return view

    def invoke(self, subgraph: int) -> None:
        """Run a subgraph without the GIL. Raises as `Interpreter.invoke`."""
        self._subgraphs.Invoke(subgraph)


def _module(name: str) -> ModuleType:
    try:
        return importlib.import_module(f"ai_edge_litert.{name}")
    except ImportError as error:
        raise EngineMissingError(f"backend CpuAcc needs the package ai-edge-litert: {error}") from error
