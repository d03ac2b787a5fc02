"""`nnhal token`: bearer tokens for the clients of a service. Needs no service."""

from typing import Annotated

import typer

from nnhal_tools.cli.errors import as_command_errors

token = typer.Typer(
    help="Create bearer tokens for the clients of a service (docs/identities.md).", no_args_is_help=True
)


@token.callback()
def _group() -> None:
    """Keep `create` a command of its own, though there is no other."""


@token.command()
def create(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the client, for policies and logs.")],
) -> None:
    """Create a token, and print its line for the file of --tokens.

    The token goes to stdout, once: it is stored nowhere. The line goes to stderr, and has only its digest.
    """
    from nnhal_service.identity.tokens import create_token

    with as_command_errors(ValueError):
        text, line = create_token(name)
    typer.echo(text)
    typer.echo(line, err=True)
