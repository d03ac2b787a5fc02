"""What the commands that talk to a service have in common."""

from typing import Annotated, TypeAlias

import typer

DEFAULT_TARGET = "127.0.0.1:50051"
CONNECT_S = 5.0
"""Seconds that a service has to answer a new connection."""

Target: TypeAlias = Annotated[str, typer.Option(metavar="ADDR", help="The service: HOST:PORT or unix:PATH.")]
