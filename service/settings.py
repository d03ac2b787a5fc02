"""What the operator of a service may set: by environment variables NNHAL_..., or by the options of `nnhal serve`."""

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict


class Settings(BaseSettings):
    """Settings of one service process."""

    model_config = SettingsConfigDict(env_prefix="NNHAL_", frozen=True)

    listen: tuple[str, ...] = Field(
        default=("127.0.0.1:50051",), description="Addresses: HOST:PORT, or unix:PATH. Port 0 takes a free one."
    )
    insecure: bool = Field(default=False, description="Allow addresses that other machines can reach, without TLS.")
    backends: tuple[str, ...] = Field(default=("CpuRef",), description="Backends in order of preference.")
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
    limits: dict[str, int] = Field(default={}, description="Limits other than their default, by name (docs/limits.md).")
