"""Description of every setting of a service, from the class of the settings: docs/settings.md."""

from pathlib import Path

from nnhal_service.settings import Settings
from nnhal_service.settings_sources import option_name, option_of, toml_value, variable_name
from tools.dev.documents.markdown import Documents, render

COMPUTED = {
    "admin_listen": "a socket in the state directory",
    "cache_dir": "`~/.cache/nnhal`",
    "dynamic_backends_path": "`~/.local/share/nnhal/backends`, and `backends` beside the packages of nnhal",
    "state_dir": "`~/.local/state/nnhal`",
}
"""Defaults that depend on the user."""


def generate() -> Documents:
    """Return the page."""
    rows = []
    for name, field in Settings.model_fields.items():
        option = option_of(name)
        text = f"{option_name(name)} {option.metavar}".strip()
        repeat = " (repeat)" if option.is_repeated else ""
        stated = "none" if field.default is None else f"`{toml_value(field.default)}`"
        description = " ".join(str(field.description).split())
        rows.append(
            f"| `{name}` | `{text}`{repeat} | `{variable_name(name)}` | {COMPUTED.get(name, stated)} | {description} |"
        )
    return {Path("docs/settings.md"): render("settings", rows="\n".join(rows))}
