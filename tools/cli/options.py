"""What the commands that talk to a service have in common."""

from typing import Annotated, TypeAlias

import typer

CONNECT_S = 5.0
"""Seconds that a service has to answer a new connection."""

Target: TypeAlias = Annotated[
    str | None,
    typer.Option(metavar="ADDR", help="The service: HOST:PORT or unix:PATH. Default: one that this command starts."),
]
