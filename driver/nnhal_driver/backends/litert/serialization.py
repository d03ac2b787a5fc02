"""Conversion of a model to sections of the compilation cache, and back. Loading converts and packs nothing.

The section `model` has the flatbuffer and the locations of its constants. Constants are arrays of the type of their
tensors, so that axes, shapes and indexes are sealed with the model. Constant outputs follow them.
"""

import json

from nnhal.tflite_schema.dtypes import DTYPES
from nnhal.types import AnyArray
from nnhal_driver.backends.api import Sections
from nnhal_driver.backends.litert.convert import ConvertedModel
from nnhal_driver.backends.litert.page_sharing import is_shareable
from nnhal_driver.backends.litert.writer import ConstantLocation, ModelFile, Reserve, place_constants
from nnhal_driver.operations.call import Shape

_PLAIN_FIELDS = ("has_variables", "engine_bytes", "steps", "has_regions", "is_dynamic")
_COUNT_BYTES = 4
"""Size of the length field at the beginning, which precedes the description."""


def save(model: ConvertedModel, shapes: tuple[Shape, ...]) -> Sections:
    """Return the sections of a model for inputs of these shapes."""
    file = model.file
    contents = file.contents()
    description = json.dumps(
        {
            "shapes": shapes,
            "inputs": model.inputs,
            "outputs": model.outputs,
            "operators": model.operators,
            "constants": list(model.constants),
            **{name: getattr(model, name) for name in _PLAIN_FIELDS},
            "places": [[location.offset, location.size, location.type] for location in file.locations],
        }
    ).encode()
    head = contents[: file.head_size].tobytes()
    places = [(slice(place.offset, place.offset + place.size), DTYPES[place.type]) for place in file.locations]
    data = (*(contents[place].view(dtype) for place, dtype in places), *model.constants.values())
    return Sections(len(description).to_bytes(_COUNT_BYTES) + description + head, data)


def load(sections: Sections, reserve: Reserve = lambda size: None) -> tuple[ConvertedModel, tuple[Shape, ...]]:
    """Return the saved model, and the shapes of its inputs. `reserve` reserves its memory."""
    start = _COUNT_BYTES + int.from_bytes(sections.model[:_COUNT_BYTES])
    description = json.loads(sections.model[_COUNT_BYTES:start])
    locations = [ConstantLocation(*fields) for fields in description["places"]]
    head = sections.model[start:]
    data, outputs = sections.data[: len(locations)], sections.data[len(locations) :]
    if any(map(is_shareable, data)):
        head, locations = place_constants(head, locations, data)
    model = ConvertedModel(
        ModelFile(head, locations, data, reserve),
        tuple(description["inputs"]),
        tuple((tensor, tuple(shape)) for tensor, shape in description["outputs"]),
        tuple(description["operators"]),
        {position: _private(array) for position, array in zip(description["constants"], outputs, strict=True)},
        **{name: description[name] for name in _PLAIN_FIELDS},
    )
    return model, tuple(tuple(shape) for shape in description["shapes"])


def _private(array: AnyArray) -> AnyArray:
    """Return a read-only copy, which does not hold the memory of the whole cache entry."""
    copy = array.copy()
    copy.flags.writeable = False
    return copy
