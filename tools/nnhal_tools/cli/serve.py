"""`nnhal serve`: run a service in this process. The only command that imports the service."""

import gc
import os
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from nnhal_tools.cli.errors import CommandError, reporting_errors
from nnhal_tools.cli.serve_options import option_values


@reporting_errors()
def serve(
    context: typer.Context,
    *,
    no_cache: Annotated[
        bool, typer.Option("--no-cache", help="Do not cache prepared models; the same as --cache-bytes 0.")
    ] = False,
    config: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="TOML file with settings. Default: nnhal.toml in the current directory."),
    ] = None,
    print_config: Annotated[
        bool, typer.Option("--print-config", help="Print the effective settings and their origins as TOML, and exit.")
    ] = False,
    embedded: Annotated[
        int | None,
        typer.Option(
            metavar="PID", hidden=True, help="Listen on a private Unix socket only, and exit with that process."
        ),
    ] = None,
) -> None:
    """Run a service until SIGINT or SIGTERM.

    Prints `listening on ADDR` for each address as soon as it accepts calls.

    Settings come from `nnhal.toml`, environment variables and options, in rising order. The variable of --cache-dir is
    NNHAL_CACHE_DIR, and so on. Lists in variables have commas. docs/settings.md describes every setting.
    """
    # Executions run concurrently, one per core, so a BLAS that uses all cores for each slows them down. It reads this
    # variable when numpy is imported, hence before the imports.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    gc.disable()  # collecting garbage during the imports takes some 30 ms, and finds none
    from nnhal_service import log, settings_sources
    from nnhal_service.memory_limits import tune_malloc
    from nnhal_service.server import Server, serve_until_shutdown

    gc.freeze()
    gc.enable()
    tune_malloc()
    options = option_values(context)
    if no_cache:
        options["cache_bytes"] = 0
    with TemporaryDirectory(prefix="nnhal-") if embedded is not None else nullcontext() as folder:
        if folder is not None:
            options["listen"] = [f"unix:{folder}/socket"]
        elif config is None:
            # not for an embedded service: a file in the current folder must not change what a client program does
            config = settings_sources.default_file()
        try:
            loaded = settings_sources.load_settings(
                config, options, {} if embedded is None else settings_sources.EMBEDDED_DEFAULTS
            )
            if print_config:
                typer.echo(settings_sources.to_toml(loaded), nl=False)
                return
            log.configure(loaded.settings.log_level, loaded.settings.log_format)
            serve_until_shutdown(Server(loaded.settings), _announce, embedded)
        except ValueError as error:
            raise CommandError(str(error)) from error


def _announce(addresses: Sequence[str]) -> None:
    for address in addresses:
        typer.echo(f"listening on {address}")
