"""Options of preparations and executions."""

from dataclasses import dataclass
from typing import Any

from nnhal.v1 import types_pb2

FAST_SINGLE_ANSWER = 1
MEDIUM = 1


@dataclass(frozen=True)
class RunOptions:
    """Options of an execution. A deadline or loop timeout of None is left out.

    Attributes:
        cache_memory: the burst caches the memories under identifiers from 0; otherwise all identifiers are -1.
        chain: launch a fenced execution twice. The second one waits for the fence of the first, and counts.
        hints: a configuration whose hints are passed on by paths that take a configuration.
    """

    measure: bool = False
    deadline_ns: int | None = None
    loop_timeout_ns: int | None = None
    cache_memory: bool = False
    chain: bool = False
    hints: types_pb2.ExecutionConfig | None = None

    def plain_fields(self) -> dict[str, Any]:
        """Return the request fields of a call without a configuration."""
        return {
            "measure_timing": self.measure,
            "deadline_ns": self.deadline_ns,
            "loop_timeout_duration_ns": self.loop_timeout_ns,
        }

    def config_fields(self) -> dict[str, Any]:
        """Return the request fields of a call with a configuration."""
        return {"config": self.config, "deadline_ns": self.deadline_ns}

    @property
    def config(self) -> types_pb2.ExecutionConfig:
        """The options as a configuration."""
        config = types_pb2.ExecutionConfig()
        if self.hints is not None:
            config.CopyFrom(self.hints)
        config.measure_timing = self.measure
        if self.loop_timeout_ns is not None:
            config.loop_timeout_duration_ns = self.loop_timeout_ns
        return config


DEFAULT_RUN = RunOptions()


@dataclass(frozen=True)
class PreparationOptions:
    """Options of a preparation. `with_config`: through prepareModelWithConfig."""

    with_config: bool = False
    preference: int = FAST_SINGLE_ANSWER
    priority: int = MEDIUM
    deadline_ns: int | None = None

    @property
    def call(self) -> str:
        """The HAL's name of the call."""
        return "prepareModelWithConfig" if self.with_config else "prepareModel"

    def fields(self) -> dict[str, Any]:
        """Return the fields of the request or configuration."""
        return {"preference": self.preference, "priority": self.priority, "deadline_ns": self.deadline_ns}


PREPARE_MODEL = PreparationOptions()


def both_preparations(deadline_ns: int | None = None) -> tuple[PreparationOptions, PreparationOptions]:
    """Return the options of prepareModel and of prepareModelWithConfig."""
    return PreparationOptions(False, deadline_ns=deadline_ns), PreparationOptions(True, deadline_ns=deadline_ns)
