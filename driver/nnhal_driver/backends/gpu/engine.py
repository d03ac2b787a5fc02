"""The engine on a GPU: compiled models, and tensors in the memory of the GPU.

A process has one environment, so one GPU. Several threads use it at the same time: the engine orders their work.
"""

import functools
import logging
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, prod
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from nnhal.types import AnyArray
from nnhal_driver.activity import current_record
from nnhal_driver.backends.device_memory import DeviceBuffer, DeviceMemory
from nnhal_driver.backends.gpu.litert_api import (
    GPU,
    PACKED_WEBGPU,
    READ,
    RUNTIME_FOLDER_TAG,
    TEXT,
    WRITE,
    LitertError,
    api,
)
from nnhal_driver.backends.gpu.memory_budget import MemoryBudget
from nnhal_driver.backends.gpu.shared_answer import LAST_SELECTION

Shape = tuple[int, ...]

_log = logging.getLogger(__name__)

_FLOAT32 = 1
"""LiteRT's element type of all buffers."""
_CACHE_NAME = "program"
_compiling = Lock()
"""Held while a model is compiled. If the first ones are compiled at once, the engine opens the GPU for each, and then
mixes their buffers up, so that results are wrong."""
_MAX_IDLE_BYTES = 64 << 20
"""Size of the buffers that are kept for the next execution."""


@dataclass(frozen=True, slots=True)
class GpuSettings:
    """Settings of the accelerator.

    Attributes:
        half_precision: whether it computes in float16.
        low_priority: whether other work on the GPU goes first.
    """

    half_precision: bool = False
    low_priority: bool = False

    def payload(self, cache: Path) -> str:
        """Return the options of the accelerator, in TOML. `cache`: folder of compiled programs."""
        lines = [
            f"precision = {1 if self.half_precision else 2}",
            f'serialization_dir = "{cache}"',
            f'model_cache_key = "{_CACHE_NAME}"',
            "serialize_program_cache = true",
        ]
        if self.low_priority:
            lines.append("priority = 1")
        return "\n".join(lines) + "\n"


@functools.cache
def environment() -> Any:
    """Return the environment of this process. It lives as long as the process."""
    library = api()
    folder = library.ffi.new("char[]", str(library.folder).encode())
    options = library.ffi.new("LiteRtEnvOption[1]")
    options[0].tag, options[0].value.type, options[0].value.text = RUNTIME_FOLDER_TAG, TEXT, folder
    return library.get("LiteRtCreateEnvironment", 1, options)


class GpuWork:
    """An execution on the GPU. It keeps its inputs, which must not be used for others, until it is known to be done.

    Args:
        model: the model that is executed.
        inputs: its inputs.

    Attributes:
        pending_s: usual seconds until it is done, with the work that it waits for; 0 when it is done.
    """

    __slots__ = ("_inputs", "_measured", "_started", "pending_s")

    def __init__(self, model: "GpuModel", inputs: Sequence["GpuBuffer"]) -> None:
        ahead_s = max((buffer.pending_s for buffer in inputs), default=0.0)
        self._inputs = inputs
        self._measured = None if ahead_s else model
        self._started = time.perf_counter()
        self.pending_s = ahead_s + model.usual_s

    def end(self) -> None:
        """Note that the work is done."""
        if self._measured is not None:
            self._measured.usual_s = min(self._measured.usual_s, time.perf_counter() - self._started)
        self._measured, self._inputs = None, ()
        self.pending_s = 0.0


class GpuBuffer:
    """Tensor in the memory of the GPU, see `DeviceBuffer`. The last reference returns it to its memory.

    Attributes:
        dtype: float32, or float16 for a tensor that the host has in float16. The GPU has all of them in float32.
        nbytes: size in the memory of the GPU.
        handle: the engine's handle.
        generation: that of its memory when it was created.
        lock: guards copies, because the engine maps a buffer for one thread at a time.
        work: the execution that writes to it; None if the host has written it.
    """

    __slots__ = ("_memory", "dtype", "generation", "handle", "lock", "nbytes", "shape", "work")

    def __init__(self, memory: "GpuMemory", shape: Shape, dtype: "np.dtype[Any]", handle: Any) -> None:
        self._memory = memory
        self.shape = shape
        self.dtype = dtype
        self.nbytes = _size(shape)
        self.handle = handle
        self.generation = memory.generation
        self.lock = Lock()
        self.work: GpuWork | None = None

    @property
    def pending_s(self) -> float:
        """Usual seconds until its value is computed; infinite if they were never measured."""
        return self.work.pending_s if self.work is not None else 0.0

    def __del__(self) -> None:
        self._memory.release(self)


class GpuMemory(DeviceMemory):
    """Memory of the GPU. It keeps some buffers that are not used, because creating one takes 200 µs.

    Args:
        limit: bytes that models may use.

    Attributes:
        budget: the memory that models use.
        generation: number of failures. Buffers from before the last one may be invalid, and are not used again.
    """

    def __init__(self, limit: int = sys.maxsize) -> None:
        self.budget = MemoryBudget(limit)
        self.generation = 0
        self._lock = Lock()
        self._idle: dict[tuple[Shape, str], list[Any]] = {}
        self._idle_bytes = 0

    def acquire(self, shape: Shape, dtype: "np.dtype[Any]") -> GpuBuffer:
        """Return a buffer.

        Raises:
            MemoryError: the GPU has not enough memory.
        """
        with self._lock:
            if idle := self._idle.get((shape, dtype.char)):
                buffer = GpuBuffer(self, shape, dtype, idle.pop())
                self._idle_bytes -= buffer.nbytes
                return buffer
        library = api()
        type_ = library.ffi.new("LiteRtTensorType *")
        type_.element_type, type_.rank = _FLOAT32, len(shape)
        type_.dimensions[0 : len(shape)] = shape
        size = _size(shape)
        try:
            handle = library.get("LiteRtCreateManagedTensorBuffer", environment(), PACKED_WEBGPU, type_, size)
        except LitertError as error:
            raise MemoryError(f"the GPU has no memory for a tensor of {size} bytes: {error}") from error
        return GpuBuffer(self, shape, dtype, handle)

    def to_own(self, array: AnyArray) -> GpuBuffer:
        """Return a buffer with the value of an array."""
        buffer = self.acquire(array.shape, array.dtype)
        self.copy(array, buffer)
        return buffer

    def release(self, buffer: GpuBuffer) -> None:
        """Take back a buffer that nothing uses any more."""
        with self._lock:
            is_valid = buffer.generation == self.generation
            if is_valid and self._idle_bytes + buffer.nbytes <= _MAX_IDLE_BYTES:
                self._idle.setdefault((buffer.shape, buffer.dtype.char), []).append(buffer.handle)
                self._idle_bytes += buffer.nbytes
                return
        api().library.LiteRtDestroyTensorBuffer(buffer.handle)

    def discard(self) -> None:
        """Free the buffers that are not used, and use none again that exists: the engine creates invalid ones.

        It does so when there is no memory, and tells this when a buffer is copied.
        """
        with self._lock:
            handles = [handle for idle in self._idle.values() for handle in idle]
            self._idle.clear()
            self._idle_bytes = 0
            self.generation += 1
        for handle in handles:
            api().library.LiteRtDestroyTensorBuffer(handle)

    def copy(self, source: AnyArray | DeviceBuffer, target: AnyArray | DeviceBuffer) -> None:
        """Copy a value. A copy out of the GPU waits until the value is computed.

        Raises:
            LitertError: the GPU was lost.
            MemoryError: the GPU has not enough memory.
        """
        if isinstance(source, GpuBuffer) and isinstance(target, GpuBuffer):
            self.copy(self.to_host(source), target)
        elif isinstance(target, GpuBuffer):
            self._transfer(target, np.ascontiguousarray(source, np.float32), WRITE)
        else:
            assert isinstance(source, GpuBuffer) and isinstance(target, np.ndarray)
            array = target if target.dtype == np.float32 else np.empty(target.shape, np.float32)
            with source.lock:
                self._transfer(source, array, READ)
            if array is not target:
                with np.errstate(over="ignore"):
                    target[...] = array
            if source.work is not None:
                source.work.end()

    def keep(self, buffer: DeviceBuffer) -> bool:
        """Wait until a value is computed, and return True.

        Events of the engine do not wait for the GPU. A copy of another tensor does, because all work is in one queue.
        """
        assert isinstance(buffer, GpuBuffer)
        self._transfer(self.acquire((1,), buffer.dtype), np.empty(1, np.float32), READ)
        api().call("LiteRtClearTensorBufferEvent", buffer.handle)  # so that no reader changes the buffer
        if buffer.work is not None:
            buffer.work.end()
        return True

    def _transfer(self, buffer: GpuBuffer, array: AnyArray, mode: int) -> None:
        """Copy a buffer, see `transfer`. Raises MemoryError: the GPU has no memory for it."""
        try:
            transfer(buffer, array, mode)
        except LitertError as error:
            self.discard()
            raise_if_lost(error)
            raise MemoryError(f"the GPU has no memory for a tensor of {buffer.nbytes} bytes: {error}") from error


def _size(shape: Shape) -> int:
    return prod(shape) * np.dtype(np.float32).itemsize


def transfer(buffer: GpuBuffer, array: AnyArray, mode: int) -> None:
    """Copy a buffer to a contiguous array, or in mode WRITE from it. A read waits until the value is computed.

    Raises:
        LitertError: the GPU was lost, or has not enough memory.
    """
    library = api()
    address = library.ffi.new("void **")
    library.call("LiteRtLockTensorBuffer", buffer.handle, address, mode)
    try:
        source, target = (array, address[0]) if mode == WRITE else (address[0], array)
        library.ffi.memmove(target, source, buffer.nbytes)
    finally:
        library.call("LiteRtUnlockTensorBuffer", buffer.handle)


def raise_if_lost(error: LitertError) -> None:
    """Raise the error of a call if the GPU was lost: a copy of a new buffer fails, too.

    A worker ends instead, because the engine does not open a GPU again. Its supervisor starts another one, and keeps
    the model that it was working on from the GPU.

    Raises:
        LitertError: the GPU was lost.
    """
    memory = GpuMemory()
    try:
        buffer = memory.acquire((1,), np.dtype(np.float32))
        for mode in (WRITE, READ):
            transfer(buffer, np.zeros(1, np.float32), mode)
    except (LitertError, MemoryError):
        _log.error("the GPU was lost: %s", error)
        LAST_SELECTION.forget()
        if current_record() is not None:
            os.abort()
        raise error from None
    finally:
        memory.discard()


class GpuModel:
    """A TFLite model that is compiled for the GPU. Serves several calls at a time, one after the other.

    Args:
        source: the flatbuffer, or the path of its file.
        settings: settings of the accelerator.
        programs: compiled programs of an earlier `GpuModel` of the same file, settings and adapter, if there is one.

    Attributes:
        programs: the compiled programs.
        has_reused_programs: whether the accelerator had to compile nothing.
        usual_s: shortest measured duration of an execution; infinite without one.

    Raises:
        LitertError: the accelerator does not take the whole model, or fails to compile it.
    """

    def __init__(self, source: bytes | str, settings: GpuSettings, programs: bytes = b"") -> None:
        self._api = library = api()
        self._model: Any = None
        self._compiled: Any = None
        self._lock = Lock()
        self.usual_s = inf
        self._source = source  # the engine does not copy it
        with tempfile.TemporaryDirectory(prefix="nnhal-gpu-") as folder:
            cache = Path(folder, f"{_CACHE_NAME}_mldrift_program_cache.bin")
            if programs:
                cache.write_bytes(programs)
            with _compiling:
                self._compile(settings, Path(folder))
            self.programs = cache.read_bytes() if cache.exists() else b""
        self.has_reused_programs = bool(programs) and self.programs == programs
        if not library.get("LiteRtCompiledModelIsNonCpuFullyAccelerated", self._compiled, kind="bool"):
            raise LitertError("compiling all operators for the GPU", 0)

    def _compile(self, settings: GpuSettings, cache: Path) -> None:
        library = self._api
        if isinstance(self._source, bytes):
            content = library.ffi.from_buffer(self._source)
            self._model = library.get("LiteRtCreateModelFromBuffer", environment(), content, len(self._source))
        else:
            self._model = library.get("LiteRtCreateModelFromFile", environment(), self._source.encode())
        payload = library.ffi.new("char[]", settings.payload(cache).encode())
        options = library.get("LiteRtCreateOptions")
        library.call("LiteRtSetOptionsHardwareAccelerators", options, GPU)
        opaque = library.get("LiteRtCreateOpaqueOptions", b"gpu_options", payload, _keep_payload())
        library.call("LiteRtAddOpaqueOptions", options, opaque)
        try:
            self._compiled = library.get("LiteRtCreateCompiledModel", environment(), self._model, options)
        finally:
            library.library.LiteRtDestroyOptions(options)

    def run(self, inputs: Sequence[GpuBuffer], outputs: Sequence[GpuBuffer]) -> None:
        """Start an execution. It ends after those that were started before, and before a copy out of an output.

        Raises:
            LitertError: the engine failed.
        """
        library = self._api
        for buffer in outputs:
            library.call("LiteRtClearTensorBufferEvent", buffer.handle)
        read = library.ffi.new("void *[]", [buffer.handle for buffer in inputs])
        written = library.ffi.new("void *[]", [buffer.handle for buffer in outputs])
        with self._lock:
            arguments = (self._compiled, 0, len(inputs), read, len(outputs), written)
            library.get("LiteRtRunCompiledModelAsync", *arguments, kind="bool")
        work = GpuWork(self, inputs)
        for buffer in outputs:
            buffer.work = work

    def __del__(self) -> None:
        if self._compiled:
            self._api.library.LiteRtDestroyCompiledModel(self._compiled)
        if self._model:
            self._api.library.LiteRtDestroyModel(self._model)


@functools.cache
def _keep_payload() -> Any:
    """Return a callback that does not free a payload: Python owns it."""
    return api().ffi.callback("void(void *)", lambda payload: None)
