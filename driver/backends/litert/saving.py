"""A built model as sections of the compilation cache, and back: nothing is converted or packed again.

The flatbuffer, with where its constants lie, is the section of the model cache. Constants are arrays of the type of
their tensors, so that axes, shapes and indexes are sealed with the model.
"""

import json

import numpy as np

from driver.backends.api import Sections
from driver.backends.litert.build import Built
from driver.backends.litert.writer import ModelFile, Place
from driver.operations.call import Shape

_DTYPES = {
    "BOOL": np.bool_,
    "FLOAT16": np.float16,
    "FLOAT32": np.float32,
    "INT8": np.int8,
    "INT16": np.int16,
    "INT32": np.int32,
    "UINT8": np.uint8,
    "UINT16": np.uint16,
}

_COUNT_BYTES = 4
"""What counts the bytes of the description, which comes first."""


def save(built: Built, shapes: tuple[Shape, ...]) -> Sections:
    """The sections of a model for inputs of these shapes."""
    file = built.file
    held = file.contents()
    described = json.dumps(
        {
            "shapes": shapes,
            "inputs": built.inputs,
            "outputs": built.outputs,
            "operators": built.operators,
            "places": [[place.offset, place.size, place.type] for place in file.places],
        }
    ).encode()
    model = len(described).to_bytes(_COUNT_BYTES) + described + held[: file.head_size].tobytes()
    return Sections(
        model,
        tuple(held[place.offset : place.offset + place.size].view(_DTYPES[place.type]) for place in file.places),
    )


def load(sections: Sections) -> tuple[Built, tuple[Shape, ...]]:
    """The model of sections, and the shapes of its inputs."""
    start = _COUNT_BYTES + int.from_bytes(sections.model[:_COUNT_BYTES])
    described = json.loads(sections.model[_COUNT_BYTES:start])
    places = [Place(*place) for place in described["places"]]
    built = Built(
        ModelFile(sections.model[start:], places, sections.data),
        tuple(described["inputs"]),
        tuple((tensor, tuple(shape)) for tensor, shape in described["outputs"]),
        tuple(described["operators"]),
    )
    return built, tuple(tuple(shape) for shape in described["shapes"])
