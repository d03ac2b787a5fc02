"""Conversion of a flatbuffer to a sub-model."""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from nnhal.tflite_schema import BuiltinOperator, TensorType
from nnhal.tflite_schema.packing import IDENTIFIER, VERSION
from nnhal.tflite_schema.reader import Fields, FlatbufferReader, InvalidFlatbuffer
from nnhal.tflite_schema.tables import OPTIONS_NAMES
from nnhal.types import AnyArray, Bytes
from nnhal_driver.backends.litert.submodel.custom_options import CUSTOM_OPTIONS
from nnhal_driver.backends.litert.submodel.model import (
    ITEM_BITS,
    InvalidSubModel,
    SubModel,
    SubModelGraph,
    SubModelOperator,
    SubModelQuantization,
    SubModelTensor,
    operator_path,
    tensor_path,
)

_REAL_TYPES = frozenset(["FLOAT16", "FLOAT32", "FLOAT64", "BOOL"])
"""Types whose quantization, which some converters write, means nothing."""
_OPERATOR_NAMES: Mapping[int, str] = {operator: operator.name for operator in BuiltinOperator}
_TYPE_NAMES: Mapping[int, str] = {type_: type_.name for type_ in TensorType}
_NO_OPTIONS: Mapping[str, object] = {}


def parse(data: bytes | memoryview | Bytes) -> SubModel:
    """Return the sub-model in a flatbuffer.

    The result refers to the constants in the data. Their bytes must not change after `verify` has checked them: copy
    memory to which a client can write.

    Args:
        data: a TFLite flatbuffer, which may contain anything.

    Raises:
        InvalidSubModel: the flatbuffer is damaged, or contains something that is not supported.
    """
    try:
        return _Conversion(np.frombuffer(data, np.uint8)).convert()
    except InvalidFlatbuffer as error:
        raise InvalidSubModel(str(error)) from None


class _Conversion:
    """Conversion of the fields of one flatbuffer."""

    def __init__(self, data: Bytes) -> None:
        self._data = data
        self._reader = FlatbufferReader(data, IDENTIFIER, strict=True)
        self._model = model = self._reader.root("Model")
        if model["version"] != VERSION:
            raise InvalidSubModel(f"the schema has version {model['version']}; expected {VERSION}")
        self._buffers = _tables(model, "buffers")
        self._codes = [self._code(index, fields) for index, fields in enumerate(_tables(model, "operator_codes"))]

    def convert(self) -> SubModel:
        """Return the sub-model."""
        graphs = _tables(self._model, "subgraphs")
        if not graphs:
            raise InvalidSubModel("subgraphs: there is no subgraph")
        return SubModel(tuple(self._graph(index, graph) for index, graph in enumerate(graphs)))

    def _code(self, index: int, fields: Fields) -> tuple[str, int, str]:
        """Return the name and the version of an operator code, and the name of a custom operator."""
        builtin = max(fields["builtin_code"], fields["deprecated_builtin_code"])
        name = _OPERATOR_NAMES.get(builtin)
        if name is None:
            raise InvalidSubModel(f"operator_codes[{index}]: operator {builtin} is unknown")
        custom = fields["custom_code"] or ""
        if name == "CUSTOM" and custom not in CUSTOM_OPTIONS:
            raise InvalidSubModel(f"operator_codes[{index}]: custom operator {custom!r} is not supported")
        return name, fields["version"], custom if name == "CUSTOM" else ""

    def _graph(self, number: int, fields: Fields) -> SubModelGraph:
        tensors = _tables(fields, "tensors")
        operators = _tables(fields, "operators")
        return SubModelGraph(
            tuple(self._tensor(tensor_path(number, index), tensor) for index, tensor in enumerate(tensors)),
            _integers(fields, "inputs"),
            _integers(fields, "outputs"),
            tuple(self._operator(number, index, operator) for index, operator in enumerate(operators)),
        )

    def _tensor(self, where: str, fields: Fields) -> SubModelTensor:
        number = fields["type"]
        type_ = _TYPE_NAMES.get(number, str(number))
        if type_ not in ITEM_BITS:
            raise InvalidSubModel(f"{where}: type {type_} is not supported")
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

    def _operator(self, number: int, index: int, fields: Fields) -> SubModelOperator:
        opcode = fields["opcode_index"]
        if opcode >= len(self._codes):
            raise InvalidSubModel(
                f"subgraph {number}, operator {index}: opcode_index is {opcode}; there are {len(self._codes)} codes"
            )
        name, version, custom = self._codes[opcode]
        where = operator_path(number, index, custom or name)
        custom_options = fields["custom_options"]
        if not custom and custom_options is not None and len(custom_options):
            raise InvalidSubModel(f"{where}: custom_options is set; only custom operators have it")
        options_type, options = self._options(where, fields)
        if custom:
            try:
                custom_options, options = CUSTOM_OPTIONS[custom](
                    np.empty(0, np.uint8) if custom_options is None else custom_options
                )
            except InvalidSubModel as error:
                raise InvalidSubModel(f"{where}: {error}") from None
        return SubModelOperator(
            name,
            version,
            _integers(fields, "inputs"),
            _integers(fields, "outputs"),
            options_type,
            options,
            _integers(fields, "intermediates"),
            custom,
            custom_options if custom else None,
        )

    def _options(self, where: str, fields: Fields) -> tuple[str, Mapping[str, object]]:
        """Return the name and the fields of an operator's options."""
        number, position = fields["builtin_options_type"], fields["builtin_options"]
        if number == 0 or position is None:
            return "", _NO_OPTIONS
        name = OPTIONS_NAMES.get(number)
        if name is None:
            raise InvalidSubModel(f"{where}: options of type {number} are not supported")
        options = self._reader.table(name, position, f"{where}: builtin_options")
        for field, value in options.items():
            if isinstance(value, np.ndarray):
                options[field] = tuple(value.tolist())
            if isinstance(value, float) and not math.isfinite(value):
                raise InvalidSubModel(f"{where}: {field} is {value}; expected a finite number")
        return name, options


def _quantization(fields: Fields | None) -> SubModelQuantization | None:
    if fields is None or fields["scale"] is None or not len(fields["scale"]):
        return None
    zero_points = np.empty(0, np.int64) if fields["zero_point"] is None else fields["zero_point"]
    return SubModelQuantization(fields["scale"], zero_points, fields["quantized_dimension"])


def _tables(fields: Fields, name: str) -> Sequence[Fields]:
    return fields[name] or []


def _integers(fields: Fields, name: str) -> tuple[int, ...]:
    value: AnyArray | None = fields[name]
    return () if value is None else tuple(value.tolist())
