"""Configuration file of a model in the repository: NAME.toml beside NAME.tflite, or NAME/config.toml."""

import re
import tomllib
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from nnhal.types import ExecutionPreference, Priority
from nnhal_service.settings_sources import problem_text

_LONG_KEY = re.compile(r"""(?:[\w"'-]+[ \t]*\.[ \t]*){16}""")
"""Dotted key that no option has. The time to parse one grows with the square of its length."""


def _member(enum: type[ExecutionPreference] | type[Priority]) -> AfterValidator:
    """Return a validator of the name of a member."""

    def check(name: str) -> str:
        if name.upper() not in enum.__members__:
            raise ValueError(f"{name!r}; expected one of {', '.join(enum.__members__).lower()}")
        return name.upper()

    return AfterValidator(check)


class ModelConfig(BaseModel):
    """Options of one model.

    Attributes:
        labels: names of the classes, in the order of the last axis of the output.
        preference: an `ExecutionPreference`.
        priority: a `Priority`.
        device: name of the device of the service that runs it, with its backends; by default the first one.
        warm: whether each worker loads the model when it starts, not when a client first uses the model.
        signature: key of the signature of the file to use; by default, its main subgraph.
        max_batch: most executions that run as one. 1: each runs alone.
        max_delay: milliseconds for which an execution waits for others.
        sha256: digest of the file of each version. A file with another digest is not loaded.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    labels: tuple[str, ...] = ()
    preference: Annotated[str, _member(ExecutionPreference)] = "FAST_SINGLE_ANSWER"
    priority: Annotated[str, _member(Priority)] = "MEDIUM"
    device: str = ""
    warm: bool = False
    signature: str | None = None
    max_batch: Annotated[int, Field(ge=1, le=256)] = 1
    max_delay: Annotated[float, Field(ge=0, le=60_000)] = 1.0
    sha256: dict[int, Annotated[str, Field(pattern="^[0-9a-f]{64}$")]] = {}


DEFAULT = ModelConfig()
"""Options of a model without a file."""


def parse_config(text: bytes) -> ModelConfig:
    """Return the options in a file.

    Raises:
        ValueError: they are not valid TOML, or an option is unknown or invalid.
    """
    try:
        decoded = text.decode()
        if key := _LONG_KEY.search(decoded):
            raise ValueError(f"the key {key[0]!r:.100} has too many parts")
        return ModelConfig.model_validate(tomllib.loads(decoded))
    except RecursionError:
        raise ValueError("its values are nested too deeply") from None
    except ValidationError as error:
        first = error.errors()[0]
        raise ValueError(f"option {'.'.join(map(str, first['loc']))}: {problem_text(first)}") from None
