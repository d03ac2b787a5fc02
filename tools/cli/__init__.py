"""The command line `nnhal`: one module for each command.

Modules import what is heavy inside their command, so that `--help` answers at once. Only `serve` starts a service; the
others reach one through the contract.
"""

import typer

from tools.cli import backends, cache, compare, conformance, demo, explain, info, run, serve

app = typer.Typer(
    name="nnhal",
    help="NNAPI devices as a service: start one, look at it, run models on it.",
    no_args_is_help=True,
    rich_markup_mode="markdown",  # its paragraphs are filled
    add_completion=False,
    pretty_exceptions_enable=False,
)
for command in (serve.serve, info.info, run.run, explain.explain, compare.compare, demo.demo, conformance.conformance):
    app.command()(command)
app.command()(backends.new_backend)
app.add_typer(backends.backends, name="backends")
app.add_typer(cache.cache, name="cache")


def main() -> None:
    """Runs the command line."""
    app(prog_name="nnhal")
