"""Options of `nnhal serve`, generated from the class of the settings.

The class is imported only when the options are needed, because pydantic is slow to import.
"""

import os
from functools import cached_property
from inspect import Parameter, Signature
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperCommand

from nnhal.errors import require_linux

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

_VALUES = "nnhal_tools.serve_options"
"""Key of the values in the context of the command."""


class ServeCommand(TyperCommand):
    """Command with an option for each setting, before the options of its function."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the options of the settings and of the function."""
        return [*self._setting_options, *super().get_params(ctx)]

    @cached_property
    def _setting_options(self) -> list[Any]:
        def take_settings() -> None:
            """Do nothing: the signature is generated, and each option stores its value."""

        # Executions run concurrently, one per core, so a BLAS that uses all cores for each slows them down. It reads
        # this variable when numpy is imported, which the settings do.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        require_linux("`nnhal serve`")
        from nnhal_service.settings import Settings

        fields = Settings.model_fields.items()
        parameters = [
            Parameter(name, Parameter.KEYWORD_ONLY, default=_make_option(name, field)) for name, field in fields
        ]
        take_settings.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
        take_settings.__annotations__ = {name: _option_type(name) for name, _ in fields}
        generated = typer.Typer(add_completion=False)
        generated.command()(take_settings)
        return list(typer.main.get_command(generated).params)


def option_values(context: typer.Context) -> dict[str, object]:
    """Return the settings that the command line has, by name."""
    values: dict[str, object] = context.meta.get(_VALUES, {})
    return values


def _option_type(name: str) -> object:
    """Return the type of an option. Pydantic converts the text, so that each source has the same errors."""
    from nnhal_service.settings_sources import option_of

    option = option_of(name)
    if not option.metavar:
        return bool | None
    return list[str] | None if option.is_repeated else str | None


def _make_option(name: str, field: "FieldInfo") -> Any:
    from nnhal_service.settings_sources import option_name, option_of, variable_name

    option, long_name = option_of(name), option_name(name)
    is_regular = option.name in ("", name)
    variable = "" if is_regular else f"Variable: {variable_name(name)}."

    def store(context: typer.Context, value: Any) -> None:
        if value is not None and value != []:
            context.meta.setdefault(_VALUES, {})[name] = value

    return typer.Option(
        None,
        f"{long_name}/--no-{long_name.removeprefix('--')}" if not option.metavar else long_name,
        metavar=option.metavar or None,
        help=" ".join(filter(None, (field.description, default_text(field), variable))),
        expose_value=False,
        show_default=False,
        callback=store,
    )


def default_text(field: "FieldInfo") -> str:
    """Return a sentence with the default of a setting, or "" if it is computed or empty."""
    value = field.default
    if field.default_factory is not None or value in (None, "", (), {}, False):
        return ""
    return f"Default: {','.join(value) if isinstance(value, tuple) else value}."
