"""The public interface of `ai_edge_litert.compiled_model` and `tensor_buffer`, version 2.3, for a device of nnhal."""

import os
from collections.abc import Mapping, Sequence
from typing import Any, Self, Unpack

import numpy as np

from nnhal.litert.devices import ConnectOptions
from nnhal.litert.interpreter import read_model
from nnhal.litert.model_file import SignatureDef, TfliteFile
from nnhal.litert.preparation import Preparer, Variables
from nnhal.litert.subgraph import SubgraphState
from nnhal.tflite_schema.reader import numbers
from nnhal.types import AnyArray, Bytes

_NO_SIGNATURE = "<placeholder signature>"
"""Key of the only signature of a file without signatures: its subgraph 0."""
_DTYPES = ("float32", "float16", "int32", "int8", "uint8", "bool")
_HOST_MEMORY = 1
"""Type of a buffer in the memory of the program (kLiteRtTensorBufferTypeHostMemory)."""


class TensorBuffer:
    """Value of an input or output, in the memory of this process.

    Args:
        array: its memory, which the buffer keeps and writes to.
    """

    def __init__(self, array: AnyArray) -> None:
        self._array: AnyArray | None = array

    @classmethod
    def create_from_host_memory(cls, data_array: AnyArray) -> Self:
        """Return a buffer in the memory of an array.

        Raises:
            ValueError: it is not an array, not contiguous, or of a type that LiteRT's buffers do not have.
        """
        _require_array(data_array)
        if not data_array.flags.c_contiguous:
            raise ValueError("data_array must be C-contiguous for zero-copy host-memory binding")
        return cls(data_array)

    @property
    def array(self) -> AnyArray:
        """The memory. LiteRT has a capsule in its place.

        Raises:
            ValueError: the buffer is destroyed.
        """
        if self._array is None:
            raise ValueError("TensorBuffer has been destroyed")
        return self._array

    def write(self, data_array: AnyArray) -> None:
        """Copy an array into the buffer, from its beginning on, whatever its shape and type.

        Raises:
            ValueError: it is not an array, or of a type that LiteRT's buffers do not have.
            RuntimeError: it is larger than the buffer.
        """
        _require_array(data_array)
        self.fill(np.ascontiguousarray(data_array))

    def fill(self, array: AnyArray) -> None:
        """Copy a contiguous array of any type into the buffer.

        Raises:
            RuntimeError: it is larger than the buffer.
        """
        source, target = _as_bytes(array), _as_bytes(self.array)
        if source.size > target.size:
            raise RuntimeError("WriteTensorBuffer: source buffer is larger than the tensor buffer")
        target[: source.size] = source

    def read(self, num_elements: int, output_dtype: Any) -> AnyArray:
        """Return the first elements of the buffer as a new array of rank 1.

        Raises:
            ValueError: LiteRT's buffers do not have the type.
            RuntimeError: the buffer is smaller.
        """
        dtype = _require_dtype(output_dtype)
        source = _as_bytes(self.array)
        if num_elements * dtype.itemsize > source.size:
            raise RuntimeError("ReadTensorToBuffer: destination buffer is larger than the tensor buffer")
        return source[: num_elements * dtype.itemsize].view(dtype).copy()

    def get_tensor_details(self) -> dict[str, Any]:
        """Return the type and the shape of the buffer."""
        return {"dtype": self.array.dtype.name, "shape": list(self.array.shape)}

    def destroy(self) -> None:
        """Free the buffer."""
        self._array = None


class CompiledModel:
    """Model of a .tflite file that runs on a device. `from_file` and `from_buffer` create it.

    Args:
        data: the file.
        name: the name of the model in errors.
        environment: kept for `environment`. The device has accelerators of its own.
        device: options of `nnhal.connect`, as for `Interpreter`.
    """

    def __init__(self, data: Bytes, name: str, environment: object, device: ConnectOptions) -> None:
        self._file: TfliteFile = TfliteFile(data)
        self._environment = environment
        preparer, variables = Preparer(self._file, name, device, False), Variables()
        signatures = self._file.signatures or {_NO_SIGNATURE: _whole_graph(self._file)}
        self._signatures: dict[str, SignatureDef] = {
            key: _in_order(self._file, each) for key, each in signatures.items()
        }
        self._states = [SubgraphState(preparer, each.subgraph, variables) for each in self._signatures.values()]
        self._are_ready = [False] * len(self._states)
        self._state(0)

    @classmethod
    def from_file(
        cls,
        model_path: str | os.PathLike[str],
        hardware_accel: object = None,
        environment: object = None,
        options: object = None,
        **device: Unpack[ConnectOptions],
    ) -> Self:
        """Return the model of a file. Accelerator, environment and options of LiteRT make no difference.

        Raises:
            ValueError: the file cannot be read or is damaged, or both an accelerator and options are given.
            RuntimeError: the device does not run the model.
        """
        _require_one(hardware_accel, options)
        return cls(read_model(model_path, None), os.path.basename(model_path), environment, device)

    @classmethod
    def from_buffer(
        cls,
        model_data: bytes,
        hardware_accel: object = None,
        environment: object = None,
        options: object = None,
        **device: Unpack[ConnectOptions],
    ) -> Self:
        """Return the model of the contents of a file, see `from_file`."""
        _require_one(hardware_accel, options)
        return cls(read_model(None, model_data), "model", environment, device)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Free the model. Calls fail afterwards."""
        self._states.clear()

    @property
    def environment(self) -> Any:
        """The environment that the program gave, or None."""
        return self._environment

    # ---- Signatures ------------------------------------------------------------------------------------

    def get_signature_list(self) -> dict[str, dict[str, list[str]]]:
        """Return the names of inputs and outputs of each signature."""
        return {
            key: {"inputs": list(signature.inputs), "outputs": list(signature.outputs)}
            for key, signature in self._signatures.items()
        }

    def get_signature_by_index(self, index: int) -> dict[str, Any]:
        """Return the key and the names of inputs and outputs of a signature.

        Raises:
            RuntimeError: there is no such signature. LiteRT ends the process.
        """
        key, _ = self._signature(index)
        return {"key": key, **self.get_signature_list()[key]}

    def get_num_signatures(self) -> int:
        """Return the number of signatures."""
        return len(self._signatures)

    def get_signature_index(self, key: str) -> int:
        """Return the index of a signature, or -1 if there is none."""
        keys = list(self._signatures)
        return keys.index(key) if key in keys else -1

    def get_input_tensor_details(self, signature_key: str) -> dict[str, Any]:
        """Return name, index, dtype and shape of each input of a signature.

        Raises:
            RuntimeError: there is no such signature.
        """
        return self._details(signature_key, self._named(signature_key).inputs)

    def get_output_tensor_details(self, signature_key: str) -> dict[str, Any]:
        """Return name, index, dtype and shape of each output of a signature.

        Raises:
            RuntimeError: there is no such signature.
        """
        return self._details(signature_key, self._named(signature_key).outputs)

    def get_input_buffer_requirements(self, input_index: int, signature_index: int = 0) -> dict[str, Any]:
        """Return the size in bytes and the types of the buffer of an input."""
        _, signature = self._signature(signature_index)
        return self._requirements(signature_index, list(signature.inputs.values())[input_index])

    def get_output_buffer_requirements(self, output_index: int, signature_index: int = 0) -> dict[str, Any]:
        """Return the size in bytes and the types of the buffer of an output."""
        _, signature = self._signature(signature_index)
        return self._requirements(signature_index, list(signature.outputs.values())[output_index])

    def is_fully_accelerated(self) -> bool:
        """Return True: the device runs the whole model, or refuses it."""
        return bool(self._states)

    # ---- Buffers and runs ------------------------------------------------------------------------------

    def create_input_buffer_by_name(self, signature_key: str, input_name: str) -> TensorBuffer:
        """Return a buffer for an input of a signature."""
        return self._buffer(self.get_signature_index(signature_key), self._named(signature_key).inputs, input_name)

    def create_output_buffer_by_name(self, signature_key: str, output_name: str) -> TensorBuffer:
        """Return a buffer for an output of a signature."""
        return self._buffer(self.get_signature_index(signature_key), self._named(signature_key).outputs, output_name)

    def create_input_buffers(self, signature_index: int) -> list[TensorBuffer]:
        """Return buffers for all inputs of a signature."""
        _, signature = self._signature(signature_index)
        return [self._buffer(signature_index, signature.inputs, name) for name in signature.inputs]

    def create_output_buffers(self, signature_index: int) -> list[TensorBuffer]:
        """Return buffers for all outputs of a signature."""
        _, signature = self._signature(signature_index)
        return [self._buffer(signature_index, signature.outputs, name) for name in signature.outputs]

    def resize_input_tensor(
        self, input_index: int, dims: Sequence[int], signature_index: int = 0, strict: bool = True
    ) -> None:
        """Set the shape of an input. Buffers that exist keep theirs.

        Raises:
            RuntimeError: there is no such input, or it cannot have this shape.
        """
        _, signature = self._signature(signature_index)
        state = self._open_state(signature_index)
        state.resize(list(signature.inputs.values())[input_index], list(dims), strict=strict)
        self._are_ready[signature_index] = False

    def resize_input_tensor_by_name(
        self, signature_key: str, input_name: str, dims: Sequence[int], strict: bool = True
    ) -> None:
        """Set the shape of an input, see `resize_input_tensor`.

        Raises:
            ValueError: there is no such signature or input.
        """
        if signature_key not in self._signatures:
            raise ValueError(f"Unknown signature: {signature_key}")
        names = list(self._signatures[signature_key].inputs)
        if input_name not in names:
            raise ValueError(f"Unknown input '{input_name}' for signature '{signature_key}'")
        self.resize_input_tensor(names.index(input_name), dims, self.get_signature_index(signature_key), strict)

    def run_by_name(
        self, signature_key: str, input_map: Mapping[str, TensorBuffer], output_map: Mapping[str, TensorBuffer]
    ) -> None:
        """Run a signature with a buffer for each input and output, by name.

        Raises:
            RuntimeError: there is no such signature, a buffer is missing, or the execution failed.
        """
        signature = self._named(signature_key)
        for kind, names, given in (("input", signature.inputs, input_map), ("output", signature.outputs, output_map)):
            if missing := [name for name in names if name not in given]:
                raise RuntimeError(f"The given map is missing some {kind} TensorBuffers: {', '.join(missing)}")
        inputs, outputs = (
            [input_map[name] for name in signature.inputs],
            [output_map[name] for name in signature.outputs],
        )
        self.run_by_index(self.get_signature_index(signature_key), inputs, outputs)

    def run_by_index(
        self, signature_index: int, input_buffers: Sequence[TensorBuffer], output_buffers: Sequence[TensorBuffer]
    ) -> None:
        """Run a signature with a buffer for each input and output, in order.

        Raises:
            RuntimeError: there is no such signature, the number of buffers is wrong, or the execution failed.
        """
        _, signature = self._signature(signature_index)
        for kind, indexes, given in (
            ("Input", signature.inputs, input_buffers),
            ("Output", signature.outputs, output_buffers),
        ):
            if len(indexes) != len(given):
                numbers = f"{len(indexes)} vs buffers:{len(given)}"
                raise RuntimeError(f"{kind} buffer size mismatch: number of {kind.lower()}s:{numbers}")
        state = self._state(signature_index)
        for index, buffer in zip(signature.inputs.values(), input_buffers, strict=True):
            state.set(index, buffer.array)
        state.invoke()
        for index, buffer in zip(signature.outputs.values(), output_buffers, strict=True):
            buffer.fill(state.copy(index))

    # ---- Parts -----------------------------------------------------------------------------------------

    def _signature(self, index: int) -> tuple[str, SignatureDef]:
        self._open_state(index)
        return list(self._signatures.items())[index]

    def _named(self, key: str) -> SignatureDef:
        if key not in self._signatures:
            raise RuntimeError(f"Signature not found: {key}")
        return self._signatures[key]

    def _open_state(self, index: int) -> SubgraphState:
        if not 0 <= index < len(self._states):
            raise RuntimeError(f"Signature index {index} is out of range of {len(self._states)} signature keys")
        return self._states[index]

    def _state(self, index: int) -> SubgraphState:
        """Return the tensors of a signature, prepared for their shapes."""
        state = self._open_state(index)
        if not self._are_ready[index]:
            state.allocate()
            self._are_ready[index] = True
        return state

    def _details(self, key: str, indexes: Mapping[str, int]) -> dict[str, Any]:
        state = self._open_state(self.get_signature_index(key))
        all_details = {name: state.details(index) for name, index in indexes.items()}
        return {
            name: {
                "name": each["name"],
                "index": each["index"],
                "dtype": np.dtype(each["dtype"]).name,
                "shape": each["shape"].tolist(),
            }
            for name, each in all_details.items()
        }

    def _requirements(self, signature: int, index: int) -> dict[str, Any]:
        details = self._state(signature).details(index)
        size = int(np.prod(details["shape"], dtype=np.int64)) * np.dtype(details["dtype"]).itemsize
        return {"buffer_size": size, "supported_types": [_HOST_MEMORY]}

    def _buffer(self, signature: int, indexes: Mapping[str, int], name: str) -> TensorBuffer:
        if name not in indexes:
            raise RuntimeError(f"Tensor not found: {name}")
        details = self._state(signature).details(indexes[name])
        return TensorBuffer(np.zeros(details["shape"], details["dtype"]))


def _whole_graph(file: TfliteFile) -> SignatureDef:
    """Return the signature of a file that has none: the names of the inputs and outputs of subgraph 0."""
    fields, tensors = file.subgraphs[0], file.tensors(0)
    inputs, outputs = ({tensors[i]["name"] or "": int(i) for i in fields[name]} for name in ("inputs", "outputs"))
    return SignatureDef(0, inputs, outputs)


def _in_order(file: TfliteFile, signature: SignatureDef) -> SignatureDef:
    """Return a signature with inputs and outputs in the order of its subgraph."""
    fields = file.subgraphs[signature.subgraph]

    def ordered(kind: str, names: Mapping[str, int]) -> dict[str, int]:
        order = numbers(fields[kind])
        return dict(sorted(names.items(), key=lambda item: order.index(item[1])))

    inputs, outputs = ordered("inputs", signature.inputs), ordered("outputs", signature.outputs)
    return SignatureDef(signature.subgraph, inputs, outputs)


def _require_one(hardware_accel: object, options: object) -> None:
    if hardware_accel is not None and options is not None:
        raise ValueError("Pass either options or hardware_accel, not both.")


def _require_array(value: object) -> None:
    if not isinstance(value, np.ndarray):
        raise ValueError("data_array must be a NumPy array")
    _require_dtype(value.dtype)


def _require_dtype(dtype: Any) -> np.dtype[Any]:
    """Return a type that LiteRT's buffers have."""
    try:
        result: np.dtype[Any] = np.dtype(dtype)
    except TypeError:
        raise ValueError(f"Unsupported dtype: {dtype}") from None
    if result.name not in _DTYPES:
        raise ValueError(f"Unsupported dtype: {dtype}")
    return result


def _as_bytes(array: AnyArray) -> AnyArray:
    """Return a view of the bytes of a contiguous array."""
    return array.reshape(-1).view(np.uint8)
