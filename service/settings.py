"""What the operator of a service may set: by environment variables NNHAL_..., or by the options of `nnhal serve`."""

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

MEBIBYTE = 2**20


class Settings(BaseSettings):
    """Settings of one service process."""

    model_config = SettingsConfigDict(env_prefix="NNHAL_", frozen=True)

    listen: tuple[str, ...] = Field(
        ("127.0.0.1:50051",), description="Addresses: HOST:PORT, or unix:PATH. Port 0 takes a free one."
    )
    insecure: bool = Field(False, description="Allow addresses that other machines can reach, without TLS.")
    backends: tuple[str, ...] = Field(("CpuRef",), description="Backends in order of preference.")
    device: str = Field("nnhal", description="Name of the device.")
    threads: int = Field(128, ge=4, description="Calls that may be in progress at once.")
    session_grace_s: float = Field(10.0, ge=0, description="Seconds that a session outlives its connection.")
    keepalive_s: float = Field(20.0, gt=0, description="Seconds between pings that find dead connections.")
    stop_grace_s: float = Field(10.0, ge=0, description="Seconds that running calls have when the service stops.")
    max_message_bytes: int = Field(4 * MEBIBYTE, description="Largest message that is accepted.")
    max_inline_bytes: int = Field(2 * MEBIBYTE, description="Most bytes of tensors that travel inside one message.")
