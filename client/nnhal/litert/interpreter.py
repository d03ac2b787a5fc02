"""The public interface of `ai_edge_litert.interpreter`, version 2.3, for a device of nnhal."""

import enum
import operator
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn, Unpack

import numpy as np

from nnhal.litert.devices import ConnectOptions
from nnhal.litert.model_file import Details, TfliteFile
from nnhal.litert.preparation import Preparer, Variables
from nnhal.litert.subgraph import SubgraphState
from nnhal.types import AnyArray, Bytes, Placement

_NO_DELEGATES = (
    "nnhal runs the model on a device, and a delegate would run it in this process; leave the delegate out: "
    "target= or NNHAL_TARGET names the device, whose service chooses its accelerator"
)


@enum.unique
class OpResolverType(enum.Enum):
    """Set of kernels of LiteRT. The device has its own: the value makes no difference."""

    AUTO = 0
    BUILTIN = 1
    BUILTIN_REF = 2
    BUILTIN_WITHOUT_DEFAULT_DELEGATES = 3


class Delegate:
    """LiteRT's delegate, which is not possible here."""

    def __init__(self, library: str, options: Mapping[object, object] | None = None) -> None:
        raise ValueError(_NO_DELEGATES)


def load_delegate(library: str, options: Mapping[object, object] | None = None) -> NoReturn:
    """Refuse: the device has accelerators of its own.

    Raises:
        ValueError: as LiteRT does for a delegate that does not load. Programs continue without it.
    """
    raise ValueError(f"Failed to load delegate from {library}\n{_NO_DELEGATES}")


class Interpreter:
    """Interpreter of a .tflite file that runs on a device.

    The arguments before `cache` are those of LiteRT. Those that choose kernels, threads and delegates of LiteRT make
    no difference, except that delegates are refused.

    Args:
        model_path: path of the file, which must stay unchanged while the interpreter exists.
        model_content: its contents, in place of the path.
        cache: whether the service stores the prepared model, so that it is compiled once.
        device: options of `nnhal.connect`, such as target and token. Without a target, NNHAL_TARGET names it. Without
            that, the service is embedded. Interpreters with the same options share a connection.

    Raises:
        ValueError: the file cannot be opened or is damaged, or an argument is wrong.
    """

    def __init__(
        self,
        model_path: str | os.PathLike[str] | None = None,
        model_content: bytes | None = None,
        experimental_delegates: Sequence[Delegate] | None = None,
        num_threads: int | None = None,
        experimental_op_resolver_type: OpResolverType = OpResolverType.AUTO,
        experimental_preserve_all_tensors: bool = False,
        experimental_disable_delegate_clustering: bool = False,
        experimental_default_delegate_latest_features: bool = False,
        experimental_compress_quantization_zero_points: bool = False,
        experimental_disable_delegate_node_fusion: bool = False,
        experimental_force_delegate_node_profiling: bool = False,
        *,
        cache: bool = False,
        **device: Unpack[ConnectOptions],
    ) -> None:
        if not isinstance(getattr(experimental_op_resolver_type, "value", None), int):
            raise ValueError(f"Unrecognized passed in op resolver type: {experimental_op_resolver_type}")
        if num_threads is not None and not isinstance(num_threads, int):
            raise ValueError("type of num_threads should be int")
        if num_threads is not None and num_threads < 1:
            raise ValueError("num_threads should >= 1")
        if experimental_delegates:
            raise ValueError(_NO_DELEGATES)
        if experimental_preserve_all_tensors:
            warnings.warn("nnhal does not preserve intermediate tensors: they stay on the device", stacklevel=2)
        self._compresses_zero_points = experimental_compress_quantization_zero_points
        file = TfliteFile(read_model(model_path, model_content))
        name = Path(model_path).name if model_path else "model"
        preparer, variables = Preparer(file, name, device, cache), Variables()
        self._file, self._preparer = file, preparer
        self._subgraphs = [SubgraphState(preparer, index, variables) for index in range(len(file.subgraphs))]

    @property
    def placement(self) -> Placement:
        """Backend of each operation of the main subgraph, with reasons. LiteRT has no such property.

        Raises:
            RuntimeError: tensors are not allocated.
        """
        return self._subgraphs[0].graph.placement

    def allocate_tensors(self) -> None:
        """Prepare the model on the device for the shapes of its inputs.

        Raises:
            RuntimeError: the device cannot be reached, or does not run the model; or the program holds a view.
        """
        self._subgraphs[0].require_no_views()
        self._subgraphs[0].allocate()

    def _subgraph(self, index: int) -> SubgraphState:
        if not 0 <= index < len(self._subgraphs):
            raise ValueError(f"Invalid subgraph index {index} exceeds max subgraph index {len(self._subgraphs)}")
        return self._subgraphs[index]

    def num_subgraphs(self) -> int:
        """Return the number of subgraphs of the file."""
        return len(self._subgraphs)

    def get_tensor_details(self, subgraph_index: int = 0) -> list[Details]:
        """Return the details of all tensors of a subgraph that the file has, except for types that numpy lacks.

        Raises:
            ValueError: there is no such subgraph.
        """
        count = len(self._subgraphs)
        if not 0 <= subgraph_index < count:
            raise ValueError(
                f"subgraph_index is out of range: {subgraph_index} for the model, which has {count} subgraphs."
            )
        details = []
        for index in range(self._subgraphs[subgraph_index].size):
            with suppress(ValueError):
                details.append(self._subgraphs[subgraph_index].details(index))
        return details

    def get_input_details(self) -> list[Details]:
        """Return the details of each input."""
        return [self._subgraphs[0].details(index) for index in self._subgraphs[0].inputs]

    def get_output_details(self) -> list[Details]:
        """Return the details of each output."""
        return [self._subgraphs[0].details(index) for index in self._subgraphs[0].outputs]

    def _get_tensor_details(self, tensor_index: int, subgraph_index: int) -> Details:
        """Return the details of a tensor."""
        return self._subgraph(subgraph_index).details(operator.index(tensor_index))

    def _get_op_details(self, op_index: int) -> dict[str, Any]:
        """Return an operator of the file with its tensors."""
        name, inputs, outputs = self._file.operators(0)[op_index]
        operand_types, result_types = (
            [self._file.dtype(0, index).type for index in indexes if index >= 0] for indexes in (inputs, outputs)
        )
        return {
            "index": int(op_index),
            "op_name": name,
            "inputs": np.array(inputs, np.int32),
            "outputs": np.array(outputs, np.int32),
            "operand_types": operand_types,
            "result_types": result_types,
        }

    def _get_ops_details(self) -> list[dict[str, Any]]:
        """Return the operators of the file with their tensors, which tools print."""
        return [self._get_op_details(index) for index in range(len(self._file.operators(0)))]

    def set_tensor(self, tensor_index: int, value: object) -> None:
        """Copy a value into an input.

        Raises:
            ValueError: the tensor has another type or shape, or is not allocated.
        """
        self._subgraphs[0].set(operator.index(tensor_index), value)

    def resize_tensor_input(self, input_index: int, tensor_size: Sequence[int], strict: bool = False) -> None:
        """Set the shape of an input, before `allocate_tensors`. If `strict`, only unknown dimensions may change.

        Raises:
            ValueError, RuntimeError: the input cannot have this shape, or the program holds a view.
        """
        self._subgraphs[0].require_no_views()
        size = np.array(tensor_size, np.int32)
        if size.ndim != 1:
            raise ValueError(f"Shape should be 1D instead of {size.ndim}.")
        self._subgraphs[0].resize(operator.index(input_index), size.tolist(), strict=strict)

    def get_tensor(self, tensor_index: int, subgraph_index: int = 0) -> AnyArray:
        """Return a copy of the value of an input, an output or a constant.

        Raises:
            ValueError: it has no value, or is an intermediate result.
        """
        return self._subgraph(subgraph_index).copy(operator.index(tensor_index))

    def tensor(self, tensor_index: int) -> Callable[[], AnyArray]:
        """Return a function that returns a view of the value of a tensor, to read and write without a copy.

        While the program holds such a view, `invoke` and whatever else may move the value raise RuntimeError.
        """
        subgraph = self._subgraphs[0]
        return lambda: subgraph.view(operator.index(tensor_index))

    def invoke(self) -> None:
        """Run the model.

        Raises:
            RuntimeError: tensors are not allocated, the program holds a view, or the execution failed.
        """
        self._subgraphs[0].invoke()

    def reset_all_variables(self) -> None:
        """Set the states of recurrent layers to zeros. As in LiteRT, resource variables keep their values."""
        for subgraph in self._subgraphs:
            subgraph.reset_states()
        self._preparer.reset_local_states()

    def get_signature_list(self) -> dict[str, dict[str, list[str]]]:
        """Return the names of inputs and outputs of each signature."""
        return {
            key: {"inputs": list(signature.inputs), "outputs": list(signature.outputs)}
            for key, signature in self._file.signatures.items()
        }

    def _get_full_signature_list(self) -> dict[str, dict[str, dict[str, int]]]:
        """Return the indexes of inputs and outputs of each signature by name."""
        return {
            key: {"inputs": dict(signature.inputs), "outputs": dict(signature.outputs)}
            for key, signature in self._file.signatures.items()
        }

    def get_signature_runner(self, signature_key: str | None = None) -> "SignatureRunner":
        """Return a callable that runs a signature.

        Args:
            signature_key: its key; None if the model has one signature.

        Raises:
            ValueError: there is no such signature.
        """
        if signature_key is None:
            count = len(self._file.signatures)
            if count != 1:
                raise ValueError(
                    f"SignatureDef signature_key is None and model has {count} Signatures. "
                    "None is only allowed when the model has 1 SignatureDef"
                )
            signature_key = next(iter(self._file.signatures))
        return SignatureRunner(self, signature_key)

    @property
    def experimental_compress_quantization_zero_points(self) -> bool:
        """The argument of the constructor, which makes no difference."""
        return self._compresses_zero_points

    def _native_handle(self) -> NoReturn:
        raise NotImplementedError("there is no tflite::Interpreter in this process: nnhal runs the model on a device")


class InterpreterWithCustomOps(Interpreter):
    """Interpreter with further kernels, which is not possible here: they would be in this process."""

    def __init__(self, custom_op_registerers: Sequence[object] | None = None, **arguments: Any) -> None:
        if custom_op_registerers:
            raise ValueError("nnhal runs the model on a device, which has no kernels of this process; use a plug-in")
        super().__init__(**arguments)


class SignatureRunner:
    """Callable that runs a signature of a model. `Interpreter.get_signature_runner` creates it.

    Raises:
        ValueError: an argument is missing, or there is no such signature.
    """

    def __init__(self, interpreter: Interpreter | None = None, signature_key: str | None = None) -> None:
        if not interpreter:
            raise ValueError("None interpreter provided.")
        if not signature_key:
            raise ValueError("None signature_key provided.")
        signature = interpreter._file.signatures.get(signature_key)
        if signature is None:
            raise ValueError(f'Invalid signature_key provided: "{signature_key}".')
        self._signature = signature
        self._subgraph = interpreter._subgraph(signature.subgraph)

    def __call__(self, **kwargs: AnyArray) -> dict[str, AnyArray]:
        """Run the signature with an array for each input, by name. Return its outputs by name.

        Raises:
            ValueError: a name, a type or a number of inputs is wrong.
            RuntimeError: the device does not run it for these shapes.
        """
        inputs, subgraph = self._signature.inputs, self._subgraph
        if len(kwargs) != len(inputs):
            raise ValueError(
                "Invalid number of inputs provided for running a SignatureDef, "
                f"expected {len(inputs)} vs provided {len(kwargs)}"
            )
        for name, value in kwargs.items():
            if name not in inputs:
                raise ValueError(f"Invalid Input name ({name}) for SignatureDef")
            subgraph.resize(inputs[name], value.shape, strict=False)
        subgraph.allocate()
        for name, value in kwargs.items():
            subgraph.set(inputs[name], value)
        subgraph.invoke()
        return {name: subgraph.copy(index) for name, index in self._signature.outputs.items()}

    def get_input_details(self) -> dict[str, Details]:
        """Return the details of each input by name."""
        return {name: self._subgraph.details(index) for name, index in self._signature.inputs.items()}

    def get_output_details(self) -> dict[str, Details]:
        """Return the details of each output by name."""
        return {name: self._subgraph.details(index) for name, index in self._signature.outputs.items()}


def read_model(path: str | os.PathLike[str] | None, content: bytes | None) -> Bytes:
    """Return the bytes of a file, mapped if it has a path.

    Raises:
        ValueError: neither or both are given, or the file cannot be opened.
        TypeError: the contents are not bytes.
    """
    if path and content:
        raise ValueError("Can't both provide `model_path` and `model_content`")
    if content:
        if not isinstance(content, bytes):
            raise TypeError(f"incompatible function arguments: model_content is a {type(content).__name__}, not bytes")
        return np.frombuffer(content, np.uint8)
    if not path:
        raise ValueError("`model_path` or `model_content` must be specified.")
    try:
        return np.memmap(os.fspath(path), np.uint8, "r").view(np.ndarray)
    except (OSError, ValueError) as error:  # an empty file cannot be mapped
        raise ValueError(f"Could not open '{os.fspath(path)}'.The model allocation is null/empty: {error}") from None
