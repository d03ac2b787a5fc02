"""`nnhal models`: the models that a service has by name."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from nnhal_tools.cli.console import make_console, print_json, print_text, show_connecting
from nnhal_tools.cli.errors import FAILED, as_command_errors, writing
from nnhal_tools.cli.options import CONNECT_S, Json, Target
from nnhal_tools.cli.security_options import client_command

if TYPE_CHECKING:
    from nnhal.types import ModelEntry

ModelName: TypeAlias = Annotated[str, typer.Argument(metavar="NAME", help="The name of the model.")]

Version: TypeAlias = Annotated[int | None, typer.Option(min=1, metavar="N", help="The version.")]

models = typer.Typer(
    help="List, push, pull, remove, load and unload the models that a service has by name.", no_args_is_help=True
)


@client_command(models, "list")
def list_(target: Target = None, as_json: Json = False) -> None:
    """Show each version of each model: whether it is ready, and why not.

    The exit code is 1 if the files of one cannot be loaded.
    """
    import nnhal

    with show_connecting(target), nnhal.connect(target, timeout=CONNECT_S) as device:
        rows = [_to_row(entry) for entry in device.models()]
    if as_json:
        print_json(rows)
    else:
        console = make_console()
        for row in rows:
            reason = f": {row['reason']}" if row["reason"] else ""
            print_text(console, f"{row['state']:10} {row['name']} {row['version']}{reason}")
        if not rows:
            print_text(console, "the service has no models by name")
    if any(row["reason"] for row in rows):
        raise typer.Exit(FAILED)


@client_command(models)
def load(name: ModelName, target: Target = None) -> None:
    """Load the current files of a model now, for all clients."""
    import nnhal

    with show_connecting(target), nnhal.connect(target, timeout=CONNECT_S) as device:
        device.load_model(name)
    typer.echo(f"loaded {name}")


@client_command(models)
def unload(name: ModelName, target: Target = None) -> None:
    """Make a model unavailable for new work, until it is loaded."""
    import nnhal

    with show_connecting(target), nnhal.connect(target, timeout=CONNECT_S) as device:
        device.unload_model(name)
    typer.echo(f"unloaded {name}")


@client_command(models)
def push(
    name: ModelName,
    file: Annotated[Path, typer.Argument(metavar="MODEL.tflite", help="The file.")],
    target: Target = None,
    version: Version = None,
    config: Annotated[Path | None, typer.Option(metavar="FILE", help="Its configuration, for all versions.")] = None,
) -> None:
    """Add a version of a model to the service, for all clients: by default, one more than the largest."""
    import nnhal

    with as_command_errors(OSError):
        data = file.read_bytes()
        options = None if config is None else config.read_bytes()
    with show_connecting(target), nnhal.connect(target, timeout=CONNECT_S) as device:
        number = device.push_model(name, data, version=version, config=options)
    typer.echo(f"pushed {name} {number}")


@client_command(models)
def pull(
    name: ModelName,
    file: Annotated[Path, typer.Argument(metavar="MODEL.tflite", help="The file to write.")],
    target: Target = None,
    version: Version = None,
    config: Annotated[Path | None, typer.Option(metavar="FILE", help="Write its configuration, if any.")] = None,
) -> None:
    """Write the file of a model, by default of its largest version."""
    import nnhal

    with show_connecting(target), nnhal.connect(target, timeout=CONNECT_S) as device:
        found = device.pull_model(name, version)
    with writing(file):
        file.write_bytes(found.data)
        if config is not None and found.config:
            config.write_bytes(found.config)
    typer.echo(f"pulled {name} {found.version}")


@client_command(models)
def remove(name: ModelName, target: Target = None, version: Version = None) -> None:
    """Remove a version of a model from the service, by default all of them."""
    import nnhal

    with show_connecting(target), nnhal.connect(target, timeout=CONNECT_S) as device:
        device.remove_model(name, version)
    typer.echo(f"removed {name}" if version is None else f"removed {name} {version}")


def _to_row(entry: "ModelEntry") -> dict[str, object]:
    return {"name": entry.name, "version": entry.version, "state": entry.state.name.lower(), "reason": entry.reason}
