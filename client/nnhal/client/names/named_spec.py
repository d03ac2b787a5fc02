"""Models that the service has by name: what takes the place of a model of the client."""

from dataclasses import dataclass

import numpy as np

from nnhal import wire
from nnhal.client.core.arguments import optional_nanoseconds, type_error
from nnhal.client.core.cache import SharedDeadline
from nnhal.litert_extension import element_dtypes
from nnhal.types import DTYPES, ExtensionNameAndPrefix, Model, ModelState, Operand, Subgraph
from nnhal.v1 import models_pb2

_NO_MODEL = Model(Subgraph((), (), (), ()))


@dataclass(frozen=True)
class PulledModel:
    """Files of a model by name.

    Attributes:
        data: contents of the .tflite file.
        config: contents of the configuration file of all versions; b"" if there is none.
    """

    version: int
    data: bytes
    config: bytes


@dataclass(frozen=True)
class NamedSpec:
    """Everything that defines a preparation by name.

    Attributes:
        version: version; 0 for the newest good one.
        device: name of the device that runs it, once it is known.
        model: inputs, outputs, states and extensions of the model, once they are known. It has no operations.
        labels: names of classes, or ().
    """

    name: str
    version: int = 0
    device: str = ""
    model: Model = _NO_MODEL
    labels: tuple[str, ...] = ()

    @staticmethod
    def of(name: str, version: int | None) -> "NamedSpec":
        """Return the spec of a name.

        Raises:
            TypeError: the name is not a text, or the version is not a number.
        """
        if not isinstance(name, str):
            raise type_error("name", name, "a text")
        if version is not None and not isinstance(version, int):
            raise type_error("version", version, "a number or None")
        return NamedSpec(name, version or 0)

    def request(self, session: bytes, deadline: SharedDeadline) -> models_pb2.PrepareNamedModelRequest:
        """Return the request that prepares the model."""
        deadline_ns = optional_nanoseconds(deadline.remaining)
        return models_pb2.PrepareNamedModelRequest(
            session=session, name=self.name, version=self.version, deadline_ns=deadline_ns
        )

    def described(self, response: models_pb2.PrepareNamedModelResponse) -> "NamedSpec":
        """Return the spec of the version that the service has prepared."""
        description, (inputs, outputs) = response.description, wire.to_notified_operands(response.notify)
        indexes = range(len(inputs) + len(outputs))
        extensions = wire.to_extension_names(description.extension_name_to_prefix)
        model = Model(
            Subgraph((*inputs, *outputs), (), tuple(indexes[: len(inputs)]), tuple(indexes[len(inputs) :])),
            extension_name_to_prefix=extensions,
            input_names=tuple(description.input_names),
            output_names=tuple(description.output_names),
            states=tuple(_state(each, inputs[each.input_index], extensions) for each in description.states),
        )
        return NamedSpec(self.name, description.version, description.device, model, tuple(description.labels))


def _state(
    message: models_pb2.ModelVariable, operand: Operand, extensions: tuple[ExtensionNameAndPrefix, ...]
) -> ModelState:
    dtype = element_dtypes(extensions).get(operand.type) or DTYPES[operand.type]
    initial = np.frombuffer(message.initial, dtype) if message.initial else np.zeros(operand.dimensions, dtype)
    return ModelState(message.name, message.input_index, message.output_index, initial.reshape(operand.dimensions))
