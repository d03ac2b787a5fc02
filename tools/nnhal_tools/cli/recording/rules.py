"""Options of the rules by which a service records executions or has them repeated, and their description."""

from collections.abc import Mapping
from typing import Annotated, Any, TypeAlias

import typer

Identities: TypeAlias = Annotated[
    list[str] | None, typer.Option("--identity", metavar="IDENTITY", help="Only of this identity. Repeat it for more.")
]
Models: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--model",
        metavar="NAME|DIGEST",
        help="Only of this model: its name, name/version, or the first digits of its digest.",
    ),
]
Devices: TypeAlias = Annotated[list[str] | None, typer.Option("--device", metavar="NAME", help="Only on this device.")]
_NOUNS = {"identities": "identity", "models": "model", "devices": "device"}


def describe_rules(verb: str, rules: Mapping[str, Any], *more: str) -> str:
    """Return the rules of a snapshot in words. `more` follows if there is a share."""
    if not rules["share"]:
        return f"{verb} nothing"
    chosen = [f"{noun} {', '.join(rules[name])}" for name, noun in _NOUNS.items() if rules[name]]
    return "; ".join([" ".join([f"{verb} {rules['share']:.4g} of the executions", *more]), *chosen])
