"""Inputs and outputs of streams: those of a model, with its states apart."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar, cast

from numpy.typing import ArrayLike

from nnhal.client.core.arrays import Inputs, ModelIO, Outputs
from nnhal.client.core.buffered_execution import AnyOutputs, BufferInputs
from nnhal.client.core.buffers import BufferBase
from nnhal.errors import SessionLostError, argument_error
from nnhal.types import AnyArray, ErrorStatus, ModelState

T = TypeVar("T")


def lost_stream() -> SessionLostError:
    """Return the error of a stream whose states are lost."""
    reason = "the states of the stream were lost with the session; call reset() to begin with the initial states"
    return SessionLostError(ErrorStatus.DEVICE_UNAVAILABLE, reason)


@dataclass(frozen=True)
class StreamIO:
    """Inputs, outputs and states of a model.

    Raises:
        HalError: INVALID_ARGUMENT: the model has no states.
    """

    io: ModelIO
    states: Sequence[ModelState]

    def __post_init__(self) -> None:
        if not self.states:
            raise argument_error("the model has no states; use `execute`")

    @cached_property
    def visible(self) -> ModelIO:
        """Inputs and outputs that are not states."""
        return ModelIO(
            self.without_state_inputs(self.io.inputs),
            self.without_state_outputs(self.io.outputs),
            self.without_state_inputs(self.io.input_names),
            self.without_state_outputs(self.io.output_names),
        )

    @cached_property
    def _stored_inputs(self) -> set[int]:
        return {state.input_index for state in self.states}

    @cached_property
    def stored_outputs(self) -> frozenset[int]:
        """Positions of the outputs that are states."""
        return frozenset(state.output_index for state in self.states)

    @property
    def state_positions(self) -> list[tuple[int, int]]:
        """Position of the input and of the output of each state."""
        return [(state.input_index, state.output_index) for state in self.states]

    @property
    def initial(self) -> list[AnyArray]:
        """Initial values of the states, with the shapes of their inputs."""
        return [state.initial.reshape(self.io.inputs[state.input_index].dimensions) for state in self.states]

    def with_states(self, inputs: Inputs, states: Sequence[Any]) -> BufferInputs:
        """Return all inputs of the model.

        Args:
            inputs: the inputs that are not states, by position or by name.
            states: the value of each state: an array, or the place that holds it.

        Raises:
            HalError: INVALID_ARGUMENT: wrong number of inputs, or an unknown name.
        """
        values: list[ArrayLike | BufferBase | None] = list(self.visible.by_position(inputs))
        for state, value in sorted(zip(self.states, states, strict=True), key=lambda pair: pair[0].input_index):
            values.insert(state.input_index, value)
        return values

    def state_outputs(self, buffers: Sequence[object]) -> dict[int, Any]:
        """Return the buffers, or other places, by position of their output."""
        return {state.output_index: buffer for state, buffer in zip(self.states, buffers, strict=True)}

    def without_state_inputs(self, values: Sequence[T]) -> tuple[T, ...]:
        """Return the values of the inputs that are not states, given those of all."""
        return _without(values, self._stored_inputs)

    def without_state_outputs(self, values: Sequence[T]) -> tuple[T, ...]:
        """Return the values of the outputs that are not states, given those of all."""
        return _without(values, self.stored_outputs)

    def without_states(self, outputs: AnyOutputs) -> Outputs:
        """Return the outputs that are not states."""
        arrays = self.without_state_outputs(outputs)
        return Outputs.of(cast(Sequence[AnyArray], arrays), self.visible.output_names, outputs.timing)


def _without(values: Sequence[T], positions: Collection[int]) -> tuple[T, ...]:
    """Return the values at other positions."""
    return tuple(value for i, value in enumerate(values) if i not in positions)
