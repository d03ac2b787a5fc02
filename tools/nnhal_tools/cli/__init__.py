"""The command line `nnhal`: one module for each command.

Modules import large packages inside their command, so that `--help` is fast. Only `serve` starts a service. The other
commands are clients of one.
"""

from typing import Annotated

import typer

from nnhal_tools.cli import backends, bench, cache, compare, conformance, demo, explain, info, models, run
from nnhal_tools.cli.admin import commands, top
from nnhal_tools.cli.command_line import CommandLine
from nnhal_tools.cli.fleet import commands as fleet_commands
from nnhal_tools.cli.ndk.commands import ndk
from nnhal_tools.cli.ndk.delegate import delegate
from nnhal_tools.cli.recording.record import record
from nnhal_tools.cli.recording.replay import replay
from nnhal_tools.cli.recording.shadow import shadow
from nnhal_tools.cli.security_options import with_security
from nnhal_tools.cli.services import quarantine, serve, token
from nnhal_tools.cli.services.serve_options import ServeCommand

app = typer.Typer(
    name="nnhal",
    cls=CommandLine,
    help="NNAPI devices as a service: start a service, inspect its devices, run models on them.",
    no_args_is_help=True,
    rich_markup_mode="markdown",  # wraps paragraphs
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)
app.command(cls=ServeCommand)(serve.serve)
for command in (
    with_security(commands.reload),
    top.top,
    info.info,
    run.run,
    explain.explain,
    compare.compare,
    bench.bench,
    demo.demo,
    conformance.conformance,
    replay,
):
    app.command()(command)
app.command()(backends.new_backend)
app.add_typer(backends.backends, name="backends")
app.add_typer(cache.cache, name="cache")
app.add_typer(models.models, name="models")
app.add_typer(ndk, name="ndk")
app.add_typer(delegate, name="delegate")
app.add_typer(quarantine.quarantine, name="quarantine")
app.add_typer(token.token, name="token")
app.add_typer(commands.admin, name="admin")
app.add_typer(record, name="record")
app.add_typer(shadow, name="shadow")
app.add_typer(fleet_commands.fleet, name="fleet")


def _print_version(requested: bool) -> None:
    if requested:
        from nnhal.version import describe_version

        typer.echo(f"nnhal {describe_version()}")
        raise typer.Exit


@app.callback()
def common_options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Take the options that precede the command."""


def main() -> None:
    """Run the command line."""
    app(prog_name="nnhal")
