"""Parser of TFLite metadata: names, normalization and labels that the author of a .tflite file has put into it.

The metadata is a flatbuffer (identifier M001) in a buffer of the model. Its label files are in a ZIP archive at the end
of the file. The parser reads a few fields.

Sources: `metadata_schema.fbs` of tflite-support for the metadata, `schema.fbs` of TensorFlow Lite for the model.
"""

import io
import struct
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from nnhal.tflite.errors import TfliteError
from nnhal.tflite_schema.reader import Fields, FlatbufferReader, InvalidFlatbuffer, numbers
from nnhal.tflite_schema.tables import parse_tables
from nnhal.types import Normalization

MAX_LABEL_BYTES = 1 << 24
"""Maximum size of a label file."""

CONTENTS = ("", "feature", "image", "bounding boxes", "audio")
"""Kinds of contents of a tensor, by the type of the union `ContentProperties`."""

_AXIS_LABELS, _VALUE_LABELS = 2, 3
"""Types of an associated file: labels of the positions on an axis, labels of values."""
_NORMALIZATION = 1
"""Type of the union `ProcessUnitOptions`."""

_MODEL = parse_tables("""
Model version:ignored operator_codes:ignored subgraphs:ignored description:ignored buffers:[Buffer]
    metadata_buffer:ignored metadata:[Metadata]
Buffer data:region
Metadata name:string buffer:uint32
""")
_METADATA = parse_tables("""
ModelMetadata name:string description:string version:string subgraph_metadata:[SubGraphMetadata] author:string
    license:string
SubGraphMetadata name:ignored description:ignored input_tensor_metadata:[TensorMetadata]
    output_tensor_metadata:[TensorMetadata]
TensorMetadata name:string description:string dimension_names:ignored content:Content process_units:[ProcessUnit]
    stats:ignored associated_files:[AssociatedFile]
Content content_properties_type:uint8 content_properties:offset
AudioProperties sample_rate:uint32
BoundingBoxProperties index:[uint32] type:uint8 coordinate_type:uint8
ProcessUnit options_type:uint8 options:offset
NormalizationOptions mean:[float32] std:[float32]
AssociatedFile name:string description:ignored type:uint8 locale:string
""")


@dataclass(frozen=True)
class BoxFormat:
    """Form of the bounding boxes in a tensor.

    Attributes:
        order: position in each box of its left, top, right and bottom; or of its x, y, width and height.
        type: "boundaries", "upper left" (x and y are a corner), "center", or "".
        coordinates: "ratio" of the image's size, or "pixel".
    """

    order: tuple[int, ...] = ()
    type: str = ""
    coordinates: str = "ratio"


@dataclass(frozen=True)
class TensorMetadata:
    """Metadata of an input or output.

    Attributes:
        content: kind of its contents, one of `CONTENTS`. "" if unknown.
        mean, std: normalization: a value for each channel, or one for all. An element is (pixel - mean) / std.
        axis_labels: a label for each position on the last axis.
        value_labels: a label for each value.
        boxes: form of the boxes, if the tensor contains bounding boxes.
        sample_rate: samples per second, if it contains sound; 0 if unknown.
    """

    name: str = ""
    description: str = ""
    content: str = ""
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    axis_labels: tuple[str, ...] = ()
    value_labels: tuple[str, ...] = ()
    boxes: BoxFormat | None = None
    sample_rate: int = 0

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels of either kind."""
        return self.axis_labels or self.value_labels


@dataclass(frozen=True)
class ModelMetadata:
    """Metadata of a model. `inputs` and `outputs` follow the order of the file, and may be shorter or longer."""

    name: str = ""
    description: str = ""
    version: str = ""
    author: str = ""
    license: str = ""
    inputs: tuple[TensorMetadata, ...] = ()
    outputs: tuple[TensorMetadata, ...] = ()


def parse_metadata(data: bytes | memoryview) -> ModelMetadata | None:
    """Return the metadata in the bytes of a .tflite file, or None if there is none.

    Raises:
        TfliteError: the file or its metadata is damaged.
    """
    if bytes(data[4:8]) != b"TFL3":
        raise TfliteError("is not a .tflite file: the identifier TFL3 is missing")
    try:
        buffer = _metadata_buffer(data)
        return None if buffer is None else _Metadata(buffer, _LabelFiles(data)).model()
    except InvalidFlatbuffer as error:
        raise TfliteError(f"metadata: is damaged or truncated: {error}") from error


def parse_normalizations(data: bytes | memoryview, count: int) -> tuple[Normalization | None, ...]:
    """Return the normalizations of the inputs in the bytes of a .tflite file; () if it tells none, or is damaged."""
    try:
        buffer = _metadata_buffer(data)
        inputs = () if buffer is None else _Metadata(buffer, None).model().inputs
    except (TfliteError, InvalidFlatbuffer):
        return ()
    found = [(tensor.mean, tensor.std) if tensor.mean and tensor.std else None for tensor in inputs[:count]]
    return (*found, *(None,) * (count - len(found))) if any(found) else ()


def _metadata_buffer(data: bytes | memoryview) -> bytes | memoryview | None:
    model = FlatbufferReader(np.frombuffer(data, np.uint8), b"TFL3", _MODEL).root("Model")
    buffers = model["buffers"] or []
    for entry in model["metadata"] or []:
        if entry["name"] == "TFLITE_METADATA":
            if entry["buffer"] >= len(buffers):
                raise TfliteError(f"metadata: there is no buffer {entry['buffer']}")
            begin, end = buffers[entry["buffer"]]["data"] or (0, 0)
            return data[begin:end]
    return None


class _Metadata:
    """The flatbuffer of the metadata, with the label files to which it refers. None: the labels are not read."""

    def __init__(self, data: bytes | memoryview, files: "_LabelFiles | None") -> None:
        if bytes(data[4:8]) != b"M001":
            raise TfliteError("metadata: the identifier M001 is missing")
        self._reader = FlatbufferReader(np.frombuffer(data, np.uint8), b"M001", _METADATA)
        self._files = files

    def model(self) -> ModelMetadata:
        fields = self._reader.root("ModelMetadata")
        graphs: Sequence[Fields] = fields["subgraph_metadata"] or []
        graph: Fields = graphs[0] if graphs else {}
        inputs, outputs = (
            tuple(map(self._tensor, graph.get(f"{kind}_tensor_metadata") or [])) for kind in ("input", "output")
        )
        texts = {name: fields[name] or "" for name in ("name", "description", "version", "author", "license")}
        return ModelMetadata(**texts, inputs=inputs, outputs=outputs)

    def _tensor(self, fields: Fields) -> TensorMetadata:
        content = fields["content"] or {}
        kind = content.get("content_properties_type", 0)
        mean, std = self._normalization(fields["process_units"] or [])
        return TensorMetadata(
            fields["name"] or "",
            fields["description"] or "",
            CONTENTS[kind] if kind < len(CONTENTS) else "",
            mean,
            std,
            self._labels(fields, _AXIS_LABELS),
            self._labels(fields, _VALUE_LABELS),
            self._boxes(content["content_properties"]) if kind == CONTENTS.index("bounding boxes") else None,
            self._sample_rate(content["content_properties"]) if kind == CONTENTS.index("audio") else 0,
        )

    def _normalization(self, units: Sequence[Fields]) -> tuple[tuple[float, ...], tuple[float, ...]]:
        for unit in units:
            if unit["options_type"] == _NORMALIZATION and unit["options"] is not None:
                options = self._reader.table("NormalizationOptions", unit["options"], "options")
                return numbers(options["mean"]), numbers(options["std"])
        return (), ()

    def _sample_rate(self, position: int | None) -> int:
        if position is None:
            return 0
        return int(self._reader.table("AudioProperties", position, "content_properties")["sample_rate"])

    def _boxes(self, position: int | None) -> BoxFormat:
        if position is None:
            return BoxFormat()
        fields = self._reader.table("BoundingBoxProperties", position, "content_properties")
        type_ = {1: "boundaries", 2: "upper left", 3: "center"}.get(fields["type"], "")
        return BoxFormat(numbers(fields["index"]), type_, "pixel" if fields["coordinate_type"] == 1 else "ratio")

    def _labels(self, tensor: Fields, type_: int) -> tuple[str, ...]:
        """Return the labels of a tensor. The file without a locale has precedence over translations."""
        files = [file for file in tensor["associated_files"] or [] if file["type"] == type_]
        names = [(file["locale"] or "", file["name"] or "") for file in files]
        return self._files.read(min(names)[1]) if names and self._files else ()


class _LabelFiles:
    """Label files in the archive at the end of a .tflite file."""

    def __init__(self, data: bytes | memoryview) -> None:
        self._data = data
        self._labels: dict[str, tuple[str, ...]] = {}

    def read(self, name: str) -> tuple[str, ...]:
        """Return the lines of a file.

        Raises:
            TfliteError: it is absent, damaged or too large.
        """
        if name not in self._labels:
            self._labels[name] = self._read(name)
        return self._labels[name]

    def _read(self, name: str) -> tuple[str, ...]:
        try:
            with zipfile.ZipFile(io.BytesIO(self._data)) as archive:
                if archive.getinfo(name).compress_type not in {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}:
                    raise TfliteError(f"metadata: {name!r} is compressed in another way than by deflate")
                with archive.open(name) as file:
                    content = file.read(MAX_LABEL_BYTES + 1)
            if len(content) > MAX_LABEL_BYTES:
                raise TfliteError(f"metadata: {name!r} is larger than {MAX_LABEL_BYTES} bytes")
            return tuple(content.decode().rstrip().splitlines())
        except KeyError:
            raise TfliteError(f"metadata: there is no file {name!r}") from None
        # a damaged or encrypted archive raises one of these
        except (zipfile.BadZipFile, zlib.error, ValueError, OSError, EOFError, RuntimeError, struct.error) as error:
            raise TfliteError(f"metadata: the file {name!r} is damaged") from error
