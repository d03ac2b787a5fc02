"""Options that the commands for services share."""

from typing import Annotated, TypeAlias

import typer

CONNECT_S = 5.0
"""Seconds that a service has to respond to a new connection."""

Json: TypeAlias = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Target: TypeAlias = Annotated[
    str | None,
    typer.Option(metavar="ADDR", help="The service: HOST:PORT or unix:PATH. Default: one that this command starts."),
]
