"""`nnhal serve`: run a service in this process. The only command that imports the service."""

import gc
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer

from nnhal_tools.cli.errors import as_command_errors
from nnhal_tools.cli.services.serve_options import option_values

if TYPE_CHECKING:
    from nnhal_service.settings import Settings
    from nnhal_service.settings_sources import LoadedSettings


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
    options = option_values(context)
    if no_cache:
        options["cache_bytes"] = 0
    with as_command_errors(ValueError):
        if embedded is not None:
            _serve_embedded(embedded, config, options, print_config=print_config)
        elif print_config:
            from nnhal_service import settings_sources

            typer.echo(settings_sources.to_toml(_load(config, options)), nl=False)
        else:
            _supervise(config, options)


def _supervise(config: Path | None, options: Mapping[str, object]) -> None:
    """Run the supervisor of a service. ValueError: bad settings, an address in use, or workers that do not start."""
    from nnhal_service.supervisor.scoreboard import Scoreboard
    from nnhal_service.supervisor.template import Template

    scoreboard = Scoreboard()
    template = Template(scoreboard)  # first of all: its imports take most of the start
    try:
        from nnhal_service import log
        from nnhal_service.settings_sources import describe
        from nnhal_service.supervisor.activation import receive_sockets, with_sockets
        from nnhal_service.supervisor.supervisor import Supervisor

        sockets = receive_sockets()
        loaded = _load(config, options)

        def reload() -> "Settings":
            nonlocal loaded
            loaded = _load(config, options)
            return with_sockets(loaded.settings, sockets)

        settings = with_sockets(loaded.settings, sockets)
        log.configure(settings.log_level, settings.log_format)
        if settings.tls_cert is not None:  # gRPC decides at its import what it traces
            template.close()
            template = Template(scoreboard, traces_handshakes=True)
        supervisor = Supervisor(
            settings, reload, scoreboard, template, sockets, lambda effective: describe(effective, loaded.origins)
        )
    except BaseException:
        template.close()
        raise
    supervisor.run(_announce)


def _load(config: Path | None, options: Mapping[str, object]) -> "LoadedSettings":
    """Return the settings of all sources."""
    from nnhal_service import settings_sources

    return settings_sources.load_settings(config or settings_sources.default_file(), options)


def _serve_embedded(parent: int, config: Path | None, options: Mapping[str, object], *, print_config: bool) -> None:
    """Run a service in this process, until its parent ends. The parent is its supervisor."""
    gc.disable()  # collecting garbage during the imports takes some 30 ms, and finds none
    from nnhal_service import log, settings_sources
    from nnhal_service.memory_limits import tune_malloc
    from nnhal_service.server import Server, serve_until_shutdown

    gc.freeze()
    gc.enable()
    tune_malloc()
    with TemporaryDirectory(prefix="nnhal-") as folder:
        private = {**options, "listen": [f"unix:{folder}/socket"]}
        # not the default file: a file in the current folder must not change what a client program does
        loaded = settings_sources.load_settings(config, private)
        if print_config:
            typer.echo(settings_sources.to_toml(loaded), nl=False)
            return
        log.configure(loaded.settings.log_level, loaded.settings.log_format)
        serve_until_shutdown(Server(loaded.settings), _announce, parent)


def _announce(addresses: Sequence[str]) -> None:
    for address in addresses:
        typer.echo(f"listening on {address}")
