"""What the operator of a service may set: by environment variables NNHAL_..., or by the options of `nnhal serve`."""

import os
from pathlib import Path

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from cache.layout import DEFAULT_BYTES, default_root


def default_state() -> Path:
    """The state directory of this user: $XDG_STATE_HOME/nnhal, or ~/.local/state/nnhal."""
    given, home = os.environ.get("XDG_STATE_HOME", ""), os.path.expanduser("~")
    if os.path.isabs(given):
        return Path(given, "nnhal")
    # a user without a home gets a folder that cannot be made: figures are then measured at each start
    return Path(home if os.path.isabs(home) else "/", ".local", "state", "nnhal")


class Settings(BaseSettings):
    """Settings of one service process."""

    model_config = SettingsConfigDict(env_prefix="NNHAL_", frozen=True)

    listen: tuple[str, ...] = Field(
        default=("127.0.0.1:50051",), description="Addresses: HOST:PORT, or unix:PATH. Port 0 takes a free one."
    )
    insecure: bool = Field(default=False, description="Allow addresses that other machines can reach, without TLS.")
    backends: tuple[str, ...] = Field(default=("CpuAcc", "CpuRef"), description="Backends in order of preference.")
    dynamic_backends_path: str = Field(
        default="",
        description="Folders with backends to load, absolute, with colons between them (docs/backends.md). Those found "
        "come before the built-in ones, unless `backends` names what is wanted.",
    )
    devices: tuple[str, ...] = Field(
        default=("nnhal",),
        min_length=1,
        description="Names of the devices, the default first; each has the same backends.",
    )
    threads: int = Field(
        default=512, ge=4, description="Calls that may be in progress at once, uploads and reads aside."
    )
    transfers: int = Field(default=32, ge=1, description="Uploads and reads that may be in progress at once.")
    transfer_idle_s: float = Field(
        default=30.0, gt=0, description="Seconds that an upload or a read waits for its client before it is ended."
    )
    idle_thread_s: float = Field(
        default=10.0, gt=0, description="Seconds that a thread waits for the next call before it ends."
    )
    session_grace_s: float = Field(default=10.0, ge=0, description="Seconds that a session outlives its connection.")
    keepalive_s: float = Field(default=20.0, gt=0, description="Seconds between pings that find dead connections.")
    stop_grace_s: float = Field(
        default=10.0, ge=0, description="Seconds that running calls have when the service stops."
    )
    process_bytes: int = Field(
        default=0,
        ge=0,
        description="Memory that the process may allocate; 0: nine tenths of what the machine or its container has.",
    )
    data_users: tuple[int, ...] = Field(
        default=(), description="Ids of users, besides its own, who may share memory with the service on its machine."
    )
    cache_dir: Path = Field(
        default_factory=default_root, description="Where prepared models are kept; private to this user."
    )
    cache_bytes: int = Field(
        default=DEFAULT_BYTES, ge=0, description="What all kept models may have together; 0: nothing is kept."
    )
    cache_key_file: Path | None = Field(
        default=None,
        description="32 secret bytes that seal kept models, for machines that share them. Without it, each cache "
        "directory has a key of its own.",
    )
    warm: int = Field(
        default=0, ge=0, description="Kept models to prepare on start, before anybody asks: the most used ones."
    )
    state_dir: Path = Field(
        default_factory=default_state,
        description="Where what the service has measured of its machine is kept; private to this user.",
    )
    limits: dict[str, int] = Field(default={}, description="Limits other than their default, by name (docs/limits.md).")
