"""LiteRT's C API, as `libLiteRt.so` of the package ai-edge-litert exports it. Its calls release the interpreter's lock.

Only the declarations that GpuAcc uses. They follow the public headers of LiteRT 2.3; the API is versioned by function.
"""

import functools
import importlib.util
from pathlib import Path
from typing import Any

from nnhal_driver.backends.litert.engine import EngineMissingError

_DECLARATIONS = """
typedef struct { int type; union { int64_t integer; const char *text; }; } LiteRtAny;
typedef struct { int tag; LiteRtAny value; } LiteRtEnvOption;
typedef struct { int32_t element_type; uint32_t rank; int32_t dimensions[8]; uint32_t strides[8]; } LiteRtTensorType;

int LiteRtCreateEnvironment(int count, const LiteRtEnvOption *options, void **environment);
int LiteRtCreateModelFromBuffer(void *environment, const void *content, size_t size, void **model);
int LiteRtCreateModelFromFile(void *environment, const char *path, void **model);
int LiteRtCreateOptions(void **options);
int LiteRtSetOptionsHardwareAccelerators(void *options, int accelerators);
int LiteRtCreateOpaqueOptions(const char *identifier, void *payload, void (*destroy)(void *), void **opaque);
int LiteRtAddOpaqueOptions(void *options, void *opaque);
int LiteRtCreateCompiledModel(void *environment, void *model, void *options, void **compiled);
int LiteRtCompiledModelIsNonCpuFullyAccelerated(void *compiled, bool *is_accelerated);
int LiteRtGetModelSignature(void *model, size_t index, void **signature);
int LiteRtGetNumSignatureInputs(void *signature, size_t *count);
int LiteRtGetNumSignatureOutputs(void *signature, size_t *count);
int LiteRtGetSignatureInputTensorByIndex(void *signature, size_t index, void **tensor);
int LiteRtGetSignatureOutputTensorByIndex(void *signature, size_t index, void **tensor);
int LiteRtGetRankedTensorType(void *tensor, LiteRtTensorType *type);
int LiteRtGetCompiledModelInputBufferRequirements(void *compiled, size_t signature, size_t index, void **required);
int LiteRtGetCompiledModelOutputBufferRequirements(void *compiled, size_t signature, size_t index, void **required);
int LiteRtGetTensorBufferRequirementsSupportedTensorBufferType(void *required, int index, int *type);
int LiteRtCreateManagedTensorBuffer(
    void *environment, int kind, const LiteRtTensorType *type, size_t size, void **buffer);
int LiteRtLockTensorBuffer(void *buffer, void **memory, int mode);
int LiteRtUnlockTensorBuffer(void *buffer);
int LiteRtClearTensorBufferEvent(void *buffer);
int LiteRtRunCompiledModelAsync(
    void *compiled, size_t signature, size_t input_count, void **inputs, size_t output_count, void **outputs,
    bool *is_async);
int LiteRtSetCompiledModelCancellationFunction(void *compiled, void *data, bool (*is_cancelled)(void *));
void LiteRtDestroyTensorBuffer(void *buffer);
void LiteRtDestroyCompiledModel(void *compiled);
void LiteRtDestroyOptions(void *options);
void LiteRtDestroyModel(void *model);
void LiteRtDestroyEnvironment(void *environment);
"""

RUNTIME_FOLDER_TAG, TEXT = 22, 8
"""Tag of the environment's option with the folder of the accelerators, and the kind of its value."""
GPU = 2
"""Accelerator, among the bits of `LiteRtHwAccelerators`."""
HOST_MEMORY, PACKED_WEBGPU = 1, 26
"""Kinds of tensor buffers. The GPU accelerator takes packed WebGPU buffers, in the layout of the host."""
READ, WRITE = 0, 1
"""Modes of a lock."""


class LitertError(RuntimeError):
    """A call of the C API failed.

    Attributes:
        status: its `LiteRtStatus`.
    """

    def __init__(self, function: str, status: int) -> None:
        super().__init__(f"{function} failed with status {status}")
        self.status = status


class Api:
    """The library: functions that return a status raise instead.

    Raises:
        EngineMissingError: cffi or ai-edge-litert is not installed.
    """

    def __init__(self) -> None:
        try:
            from cffi import FFI  # noqa: PLC0415 - only this backend needs it
        except ImportError as error:
            raise EngineMissingError(f"backend GpuAcc needs the package cffi: {error}") from error
        found = importlib.util.find_spec("ai_edge_litert")
        if found is None or found.origin is None:
            raise EngineMissingError("backend GpuAcc needs the package ai-edge-litert")
        self.folder = Path(found.origin).parent
        self.ffi: Any = FFI()
        self.ffi.cdef(_DECLARATIONS)
        self.library: Any = self.ffi.dlopen(str(self.folder / "libLiteRt.so"))

    def call(self, function: str, *arguments: Any) -> None:
        """Call a function.

        Raises:
            LitertError: it failed.
        """
        if status := getattr(self.library, function)(*arguments):
            raise LitertError(function, status)

    def get(self, function: str, *arguments: Any, kind: str = "void *") -> Any:
        """Call a function that stores its result at its last argument. Return the result.

        Raises:
            LitertError: it failed.
        """
        result = self.ffi.new(f"{kind}*")
        self.call(function, *arguments, result)
        return result[0]


@functools.cache
def api() -> Api:
    """Return the library, which is loaded once."""
    return Api()
