"""Files with TFLite metadata for the tests: `with_metadata` adds it to a file."""

import io
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.nnhal.tflite.build import flatbuffers, pack, schema

AXIS_LABELS, VALUE_LABELS = 2, 3
FEATURE, IMAGE, BOXES = 1, 2, 3


@dataclass
class TensorDescription:
    """Metadata of an input or output.

    `files` maps names of label files to their types. `order` is the order of the numbers in a box, and `box` is the
    type and the coordinates.
    """

    name: str = ""
    content: int = 0
    mean: Sequence[float] = ()
    std: Sequence[float] = ()
    files: Mapping[str, int] = field(default_factory=dict)
    order: Sequence[int] = ()
    box: tuple[int, int] = (1, 0)


def with_metadata(
    file: bytes,
    inputs: Sequence[TensorDescription] = (),
    outputs: Sequence[TensorDescription] = (),
    labels: Mapping[str, str] | None = None,
    metadata: bytes | None = None,
) -> bytes:
    """Return a .tflite file with metadata, and with label files in an archive at its end."""
    model = schema.ModelT.InitFromPackedBuf(file, 0)
    buffer, entry = schema.BufferT(), schema.MetadataT()
    buffer.data = list(pack_metadata(inputs, outputs) if metadata is None else metadata)
    entry.name, entry.buffer = "TFLITE_METADATA", len(model.buffers)
    model.buffers.append(buffer)
    model.metadata = [entry]
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as writer:
        for name, text in (labels or {}).items():
            writer.writestr(name, text)
    return pack(model) + (archive.getvalue() if labels else b"")


def pack_metadata(inputs: Sequence[TensorDescription] = (), outputs: Sequence[TensorDescription] = ()) -> bytes:
    """Return the flatbuffer of the metadata of a model that is called "a model"."""
    builder = flatbuffers.Builder()
    tensors = [_vector(builder, [_tensor(builder, t) for t in infos]) for infos in (inputs, outputs)]
    graph = _table(builder, {2: tensors[0], 3: tensors[1]})
    model = _table(builder, {0: builder.CreateString("a model"), 3: _vector(builder, [graph])})
    builder.Finish(model, file_identifier=b"M001")
    return bytes(builder.Output())


def _tensor(builder: Any, info: TensorDescription) -> int:
    files = [_file(builder, name, type_) for name, type_ in info.files.items()]
    units = [_normalization(builder, info)] if info.std else []
    properties = _box_properties(builder, info) if info.content == BOXES else _table(builder, {})
    content = _table(builder, {1: properties}, {0: (builder.PrependUint8Slot, info.content)})
    name = builder.CreateString(info.name)
    return _table(builder, {0: name, 3: content, 4: _vector(builder, units), 6: _vector(builder, files)})


def _file(builder: Any, name: str, type_: int) -> int:
    return _table(builder, {0: builder.CreateString(name)}, {2: (builder.PrependUint8Slot, type_)})


def _normalization(builder: Any, info: TensorDescription) -> int:
    mean, std = (_numbers(builder, builder.PrependFloat32, values) for values in (info.mean, info.std))
    options = _table(builder, {0: mean, 1: std})
    return _table(builder, {1: options}, {0: (builder.PrependUint8Slot, 1)})


def _box_properties(builder: Any, info: TensorDescription) -> int:
    order = _numbers(builder, builder.PrependUint32, info.order)
    type_, coordinates = info.box
    return _table(
        builder, {0: order}, {1: (builder.PrependUint8Slot, type_), 2: (builder.PrependUint8Slot, coordinates)}
    )


def _table(
    builder: Any, offsets: Mapping[int, int], numbers: Mapping[int, tuple[Callable[..., None], int]] | None = None
) -> int:
    builder.StartObject(12)
    for slot, offset in offsets.items():
        builder.PrependUOffsetTRelativeSlot(slot, offset, 0)
    for slot, (prepend, value) in (numbers or {}).items():
        prepend(slot, value, 0)
    return int(builder.EndObject())


def _vector(builder: Any, offsets: Sequence[int]) -> int:
    return _numbers(builder, builder.PrependUOffsetTRelative, offsets)


def _numbers(builder: Any, prepend: Callable[[Any], None], values: Sequence[Any]) -> int:
    builder.StartVector(4, len(values), 4)
    for value in reversed(values):
        prepend(value)
    return int(builder.EndVector())
