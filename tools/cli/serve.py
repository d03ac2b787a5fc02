"""`nnhal serve`: runs a service in this process. The only command that imports `service`."""

import gc
import os
from collections.abc import Sequence
from contextlib import nullcontext
from enum import StrEnum
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import typer

from tools.cli.errors import CommandError, reporting_errors


class LogLevel(StrEnum):
    """What is logged: this and everything more severe."""

    DEBUG = "DEBUG"
    INFO = "INFO"
    WARNING = "WARNING"
    ERROR = "ERROR"


@reporting_errors()
def serve(
    listen: Annotated[
        list[str] | None,
        typer.Option(metavar="ADDR", help="HOST:PORT (port 0: a free one) or unix:PATH. May be repeated."),
    ] = None,
    backends: Annotated[
        str | None, typer.Option(metavar="NAMES", help="Backends in order of preference, with commas between them.")
    ] = None,
    dynamic_backends_path: Annotated[
        str | None,
        typer.Option(metavar="FOLDERS", help="Folders with backends to load, absolute, with colons between them."),
    ] = None,
    insecure: Annotated[
        bool | None, typer.Option("--insecure", help="Allow addresses that other machines can reach, without TLS.")
    ] = None,
    device: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Name of a device. May be repeated; the first is the default."),
    ] = None,
    limit: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="Change a limit of docs/limits.md. May be repeated.")
    ] = None,
    cache_dir: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where prepared models are kept. Default: ~/.cache/nnhal.")
    ] = None,
    cache_bytes: Annotated[
        int | None, typer.Option(metavar="N", min=0, help="What all kept models may have together.")
    ] = None,
    no_cache: Annotated[bool, typer.Option("--no-cache", help="Keep no prepared models.")] = False,
    cache_key_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="32 secret bytes that seal kept models; not the directory's own."),
    ] = None,
    warm: Annotated[
        int | None,
        typer.Option(metavar="N", min=0, help="Prepare the N most used of the kept models on start. Default: 0."),
    ] = None,
    embedded: Annotated[
        int | None,
        typer.Option(
            metavar="PID", hidden=True, help="Listen on a private Unix socket alone, and end with that process."
        ),
    ] = None,
    log_level: Annotated[
        LogLevel, typer.Option(case_sensitive=False, help="What is logged to stderr.")
    ] = LogLevel.INFO,
) -> None:
    """Run a service until SIGINT or SIGTERM.

    Prints `listening on ADDR` for each address as soon as it takes calls. What no option says comes from NNHAL_LISTEN,
    NNHAL_BACKENDS, NNHAL_DEVICES (JSON lists), NNHAL_LIMITS (a JSON object), NNHAL_DYNAMIC_BACKENDS_PATH,
    NNHAL_CACHE_DIR, NNHAL_CACHE_BYTES, NNHAL_CACHE_KEY_FILE, NNHAL_WARM and NNHAL_INSECURE; else it is 127.0.0.1:50051,
    CpuAcc and CpuRef, nnhal, the defaults of docs/limits.md, a cache of 4 GiB and nothing prepared ahead.
    """
    # Executions run side by side, one for each core: a BLAS that takes all cores for each gets in their way. It reads
    # this when numpy is imported, so it stands before the imports.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    gc.disable()  # to look for garbage among what is being loaded takes some 30 ms, and finds none
    from service import log
    from service.process import tune_malloc
    from service.server import Server, serve_until_told

    gc.freeze()
    gc.enable()
    tune_malloc()
    log.configure(log_level)
    options = {
        "listen": listen,
        "backends": backends.split(",") if backends is not None else None,
        "dynamic_backends_path": dynamic_backends_path,
        "insecure": insecure,
        "devices": device,
        "limits": limit and dict(map(_limit, limit)),
        "cache_dir": cache_dir,
        "cache_bytes": 0 if no_cache else cache_bytes,
        "cache_key_file": cache_key_file,
        "warm": warm,
    }
    with _private_folder() if embedded is not None else nullcontext() as folder:
        if folder is not None:
            options["listen"] = [f"unix:{folder}/socket"]
        settings = _settings({name: value for name, value in options.items() if value is not None})
        try:
            serve_until_told(Server(settings), _announce, embedded)
        except ValueError as error:
            raise CommandError(str(error)) from error


def _limit(text: str) -> tuple[str, int]:
    name, _, value = text.partition("=")
    if not value.isdecimal():
        raise CommandError(f"{text!r} is no limit: NAME=VALUE is wanted")
    return name, int(value)


def _private_folder() -> TemporaryDirectory[str]:
    """A folder that only this user can enter."""
    return TemporaryDirectory(prefix="nnhal-")


def _settings(given: dict[str, Any]) -> Any:
    """Settings of the environment, overridden by options.

    Raises:
        CommandError: a value is wrong; names the environment variable.
    """
    from pydantic import ValidationError
    from pydantic_settings import SettingsError

    from service.settings import Settings

    try:
        settings = Settings(**given)
    except ValidationError as error:
        faults = (f"NNHAL_{'_'.join(map(str, e['loc'][:1])).upper()}: {e['msg']}" for e in error.errors())
        raise CommandError("; ".join(faults)) from error
    except SettingsError as error:
        raise CommandError(f"{error} (lists are written as JSON)") from error
    for address in settings.listen:
        _check_address(address)
    return settings


def _check_address(address: str) -> None:
    if address.startswith("unix:") and address != "unix:":
        return
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise CommandError(f"{address!r} is no address: HOST:PORT or unix:PATH is wanted")


def _announce(addresses: Sequence[str]) -> None:
    for address in addresses:
        typer.echo(f"listening on {address}")
