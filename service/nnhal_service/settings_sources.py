"""Sources of settings: a TOML file, the environment and options, in rising order."""

import json
import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from nnhal_service.settings import Option, Settings

DEFAULT_FILE = Path("nnhal.toml")
"""File in the current directory that `nnhal serve` reads, if it exists."""
_EXPECTED = {
    "bool_parsing": "true or false",
    "bool_type": "true or false",
    "dict_type": "a table",
    "float_parsing": "a number",
    "float_type": "a number",
    "greater_than": "more than {gt}",
    "greater_than_equal": "at least {ge}",
    "int_from_float": "an integer",
    "int_parsing": "an integer",
    "int_type": "an integer",
    "literal_error": "{expected}",
    "path_type": "a path",
    "string_type": "text",
    "too_short": "at least {min_length}",
    "tuple_type": "a list",
}
"""Valid values, by pydantic's type of the problem."""
SECRET = "(secret)"
"""Text in place of a value that may be secret."""
_SECRET_NAME = re.compile(r"(?i)(key|passw|secret|token|hash|credential)")
DEFAULT = "default"
"""Origin of values that no source has."""


@dataclass(frozen=True)
class LoadedSettings:
    """Settings, and where each value came from.

    Attributes:
        origins: for each setting, a file, an environment variable, an option, or DEFAULT.
    """

    settings: Settings
    origins: Mapping[str, str]


def default_file() -> Path | None:
    """Return the file of settings in the current directory, or None if there is none."""
    return DEFAULT_FILE if DEFAULT_FILE.is_file() else None


def option_of(setting: str) -> Option:
    """Return the form of a setting's option."""
    return next(data for data in Settings.model_fields[setting].metadata if isinstance(data, Option))


def option_name(setting: str) -> str:
    """Return the option of a setting, for example --cache-dir."""
    return f"--{option_of(setting).name or setting.replace('_', '-')}"


def variable_name(setting: str) -> str:
    """Return the environment variable of a setting, for example NNHAL_CACHE_DIR."""
    return f"NNHAL_{setting.upper()}"


def load_settings(file: Path | None, options: Mapping[str, object]) -> LoadedSettings:
    """Return the settings of a file, the environment and options. Later sources override earlier ones.

    Args:
        file: the TOML file; None to read no file.
        options: the settings that the command line has, by name.

    Raises:
        ValueError: a value is invalid, or the file is unusable. The message names the file, variable or option.
    """
    from_file = _read_file(file) if file else {}
    environment = {
        name: os.environ[variable_name(name)] for name in Settings.model_fields if variable_name(name) in os.environ
    }
    origins = {
        **dict.fromkeys(Settings.model_fields, DEFAULT),
        **dict.fromkeys(from_file, str(file)),
        **{name: variable_name(name) for name in environment},
        **{name: option_name(name) for name in options},
    }
    given = {**from_file, **environment, **options}
    try:
        settings = Settings.model_validate(given)
    except ValidationError as error:
        raise ValueError("; ".join(_describe(problem, origins) for problem in error.errors())) from error
    return LoadedSettings(settings, origins)


def _read_file(path: Path) -> dict[str, Any]:
    """Return the settings of a TOML file."""
    try:
        values = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise ValueError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        reason = "it is not text in UTF-8" if isinstance(error, UnicodeDecodeError) else str(error)
        raise ValueError(f"{path} is not valid TOML: {reason}") from error
    if unknown := [name for name in values if name not in Settings.model_fields]:
        raise ValueError(f"{path}: unknown setting {unknown[0]!r}; docs/settings.md lists the settings")
    return values


def _describe(problem: Mapping[str, Any], origins: Mapping[str, str]) -> str:
    """Return the text of a problem that pydantic found, beginning with the source of the value."""
    setting, *path = problem["loc"] or ("",)  # a problem of several settings together has no place
    origin = origins.get(setting, "settings")
    source = origin if origin.startswith(("-", "NNHAL_")) or not setting else f"{origin}: {setting}"
    where = "".join(f"[{key}]" for key in path)
    return f"{source}{where}: {problem_text(problem)}"


def problem_text(problem: Mapping[str, Any]) -> str:
    """Return what is wrong with a value, and what was expected, for a problem that pydantic found."""
    if problem["type"] == "extra_forbidden":
        return "there is no such name"
    message: str = problem["msg"].removeprefix("Value error, ")
    if problem["type"] == "value_error":
        return message
    expected = _EXPECTED.get(problem["type"], "").format_map(problem.get("ctx", {}))
    return f"invalid value {problem['input']!r}: {f'expected {expected}' if expected else message}"


def to_toml(loaded: LoadedSettings) -> str:
    """Return the effective values as a TOML document, each with its origin in a comment."""
    lines = []
    for name in Settings.model_fields:
        value = getattr(loaded.settings, name)
        line = f"# {name} is not set" if value is None else f"{name} = {toml_value(value)}"
        lines.append(f"{line}  # {loaded.origins[name]}")
    return "\n".join(lines) + "\n"


def describe(settings: Settings, origins: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """Return name, value in TOML and origin of each setting, for operators. Values that may be secret are left out."""
    described = []
    for name in Settings.model_fields:
        value = getattr(settings, name)
        text = "" if value is None else toml_value(_without_secrets(value))
        described.append((name, text, origins.get(name, DEFAULT)))
    return described


def _without_secrets(value: object) -> object:
    """Return a value in which those under names such as "password" are replaced."""
    if isinstance(value, Mapping):
        return {
            key: SECRET
            if _SECRET_NAME.search(key) and not isinstance(item, Mapping | list | tuple)
            else _without_secrets(item)
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return tuple(map(_without_secrets, value))
    return value


def toml_value(value: object) -> str:
    """Return a value of a setting in TOML."""
    match value:
        case bool():
            return str(value).lower()
        case int() | float():
            return str(value)
        case tuple() | list():
            return f"[{', '.join(map(toml_value, value))}]"
        case BaseModel():
            return toml_value(value.model_dump(exclude_none=True, exclude_defaults=True))
        case dict():
            pairs = ", ".join(f"{json.dumps(key)} = {toml_value(item)}" for key, item in value.items())
            return f"{{ {pairs} }}" if pairs else "{}"
    # JSON's strings are strings of TOML, except that TOML needs DEL escaped
    return json.dumps(str(value)).replace("\x7f", "\\u007f")
