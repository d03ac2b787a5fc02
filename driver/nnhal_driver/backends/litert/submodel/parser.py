"""Conversion of a flatbuffer to a sub-model."""

from collections.abc import Mapping, Sequence

import numpy as np

from nnhal.tflite_schema import BuiltinOperator, TensorType
from nnhal.tflite_schema.packing import IDENTIFIER, VERSION
from nnhal.tflite_schema.reader import Fields, FlatbufferReader, InvalidFlatbuffer, numbers
from nnhal.tflite_schema.tables import OPTIONS_NAMES
from nnhal.types import Bytes
from nnhal_driver.backends.litert.submodel.model import (
    InvalidSubModel,
    SubModel,
    SubModelGraph,
    SubModelOperator,
    SubModelQuantization,
    SubModelTensor,
    operator_path,
)

_REAL_TYPES = frozenset(["FLOAT16", "FLOAT32", "FLOAT64", "BOOL"])
"""Types whose quantization, which some converters write, means nothing."""
_OPERATOR_NAMES: Mapping[int, str] = {operator: operator.name for operator in BuiltinOperator}
_TYPE_NAMES: Mapping[int, str] = {type_: type_.name for type_ in TensorType}
_NO_OPTIONS: Mapping[str, object] = {}
_OMITTED = -1
"""Number of an omitted tensor."""


def parse(data: bytes | memoryview | Bytes) -> SubModel:
    """Return the sub-model in a flatbuffer.

    The result refers to the constants in the data: copy memory to which a client can write.

    Args:
        data: a TFLite flatbuffer, which may contain anything.

    Raises:
        InvalidSubModel: the flatbuffer is damaged.
    """
    array = np.frombuffer(data, np.uint8)
    try:
        return _Conversion(array, strict=True).convert()
    except InvalidFlatbuffer:  # damaged, or with fields that are not copied
        pass
    try:
        return _Conversion(array, strict=False).convert()
    except InvalidFlatbuffer as error:
        raise InvalidSubModel(str(error)) from None


class _Conversion:
    """Conversion of the fields of one flatbuffer. `strict`: see `FlatbufferReader`."""

    def __init__(self, data: Bytes, *, strict: bool) -> None:
        self._data = data
        self._is_complete = strict
        self._reader = FlatbufferReader(data, IDENTIFIER, strict=strict)
        self._model = model = self._reader.root("Model")
        if model["version"] != VERSION:
            raise InvalidSubModel(f"the schema has version {model['version']}; expected {VERSION}")
        self._buffers = _tables(model, "buffers")
        self._codes = [_code(fields) for fields in _tables(model, "operator_codes")]

    def convert(self) -> SubModel:
        """Return the sub-model."""
        graphs = tuple(self._graph(index, graph) for index, graph in enumerate(_tables(self._model, "subgraphs")))
        if not graphs or not graphs[0].operators:
            raise InvalidSubModel("subgraph 0: there is no operator")
        return SubModel(graphs, self._is_complete)

    def _graph(self, number: int, fields: Fields) -> SubModelGraph:
        tensors = tuple(
            self._tensor(f"subgraph {number}, tensor {index}", tensor)
            for index, tensor in enumerate(_tables(fields, "tensors"))
        )
        operators = enumerate(_tables(fields, "operators"))
        return SubModelGraph(
            tensors,
            _indices(f"subgraph {number}", fields, "inputs", len(tensors)),
            _indices(f"subgraph {number}", fields, "outputs", len(tensors)),
            tuple(self._operator(number, index, operator, len(tensors)) for index, operator in operators),
        )

    def _tensor(self, where: str, fields: Fields) -> SubModelTensor:
        type_ = _TYPE_NAMES.get(fields["type"], str(fields["type"]))
        buffer = fields["buffer"]
        if buffer >= len(self._buffers) and buffer:
            raise InvalidSubModel(f"{where}: buffer is {buffer}; there are {len(self._buffers)} buffers")
        begin, end = (self._buffers[buffer]["data"] if buffer else None) or (0, 0)
        return SubModelTensor(
            type_,
            _integers(fields, "shape"),
            self._data[begin:end] if begin != end else None,
            None if type_ in _REAL_TYPES else _quantization(fields["quantization"]),
            fields["is_variable"],
        )

    def _operator(self, number: int, index: int, fields: Fields, tensors: int) -> SubModelOperator:
        opcode = fields["opcode_index"]
        if opcode >= len(self._codes):
            raise InvalidSubModel(
                f"subgraph {number}, operator {index}: opcode_index is {opcode}; there are {len(self._codes)} codes"
            )
        name, version, custom = self._codes[opcode]
        where = operator_path(number, index, custom or name)
        options_type, options = self._options(where, fields)
        return SubModelOperator(
            name,
            version,
            _indices(where, fields, "inputs", tensors, _OMITTED),
            _indices(where, fields, "outputs", tensors),
            options_type,
            options,
            _indices(where, fields, "intermediates", tensors),
            custom,
            fields["custom_options"],
        )

    def _options(self, where: str, fields: Fields) -> tuple[str, Mapping[str, object]]:
        """Return the name and the fields of an operator's options."""
        number, position = fields["builtin_options_type"], fields["builtin_options"]
        if number == 0 or position is None:
            return "", _NO_OPTIONS
        name = OPTIONS_NAMES.get(number)
        if name is None:
            self._is_complete = False
            return "", _NO_OPTIONS
        options = self._reader.table(name, position, f"{where}: builtin_options")
        return name, {
            field: numbers(value) if isinstance(value, np.ndarray) else value for field, value in options.items()
        }


def _code(fields: Fields) -> tuple[str, int, str]:
    """Return the name and the version of an operator code, and the name of a custom operator."""
    builtin = max(fields["builtin_code"], fields["deprecated_builtin_code"])
    name = _OPERATOR_NAMES.get(builtin, str(builtin))
    return name, fields["version"], (fields["custom_code"] or "") if name == "CUSTOM" else ""


def _quantization(fields: Fields | None) -> SubModelQuantization | None:
    if fields is None or fields["scale"] is None or not len(fields["scale"]):
        return None
    zero_points = np.empty(0, np.int64) if fields["zero_point"] is None else fields["zero_point"]
    return SubModelQuantization(fields["scale"], zero_points, fields["quantized_dimension"])


def _tables(fields: Fields, name: str) -> Sequence[Fields]:
    return fields[name] or []


def _integers(fields: Fields, name: str) -> tuple[int, ...]:
    return numbers(fields[name])


def _indices(where: str, fields: Fields, name: str, count: int, lowest: int = 0) -> tuple[int, ...]:
    """Return numbers of tensors that are in range."""
    for index in (indices := _integers(fields, name)):
        if not lowest <= index < count:
            raise InvalidSubModel(f"{where}: {name} refers to tensor {index}; there are {count}")
    return indices
