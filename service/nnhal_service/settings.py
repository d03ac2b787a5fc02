"""Settings of a service. The options of `nnhal serve` and docs/settings.md are generated from the class.

`nnhal_service.settings_sources` reads the values from a file, the environment and options.
"""

import json
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Literal, TypeAlias, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator, model_validator

from nnhal.address import Address
from nnhal.cpu import available_cpus
from nnhal.types import DeviceType
from nnhal_cache.layout import DEFAULT_BYTES, default_root, user_directory
from nnhal_service.identity.policy import Policy
from nnhal_service.peers.cache_share.locations import check_url, directory_of
from nnhal_service.peers.fleet.peer_addresses import PeerTarget


def default_state() -> Path:
    """Return the state directory of this user: $XDG_STATE_HOME/nnhal, or ~/.local/state/nnhal."""
    return user_directory("XDG_STATE_HOME", ".local", "state")


def default_backend_folders() -> str:
    """Return the default search path for backends: a folder of this user, and a folder beside the packages of nnhal.

    They are $XDG_DATA_HOME/nnhal/backends, or ~/.local/share/nnhal/backends; and, for example, site-packages/backends.
    """
    folders = (user_directory("XDG_DATA_HOME", ".local", "share"), Path(__file__).resolve().parents[1])
    return ":".join(str(folder / "backends") for folder in folders)


LogLevel: TypeAlias = Literal["DEBUG", "INFO", "WARNING", "ERROR"]
AllocatorName: TypeAlias = Literal["default", "huge-pages", "locked"]
LogFormat: TypeAlias = Literal["text", "json"]
SandboxMode: TypeAlias = Literal["on", "network", "off"]


@dataclass(frozen=True)
class Option:
    """Form of the option of a setting on the command line.

    Attributes:
        metavar: the placeholder of the value; "" for a flag.
        name: the option without dashes; by default the name of the setting with hyphens.
        is_repeated: the option takes one element of the value, and may be repeated. Otherwise, a list has commas.
    """

    metavar: str = ""
    name: str = ""
    is_repeated: bool = False


class Settings(BaseModel):
    """Settings of one service process."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    listen: Annotated[tuple[str, ...], Option("ADDR", is_repeated=True)] = ("127.0.0.1:50051",)
    """Addresses: HOST:PORT or unix:PATH. Port 0 selects a free port."""
    admin_listen: Annotated[str | None, Option("ADDR")] = None
    """Address of the administration (docs/administration.md): unix:PATH, for this user and root; HOST:PORT, for
    identities that the policy allows, with TLS; or none. Default: a socket in the state directory, which a TCP address
    does not replace."""
    http_listen: Annotated[str | None, Option("ADDR")] = None
    """HOST:PORT for HTTP: health, metrics, a JSON API and a page that shows the service (docs/page.md). Default: none.
    Port 0 selects a free port."""
    http_hosts: Annotated[tuple[str, ...], Option("NAME", "http-host", is_repeated=True)] = ()
    """Host names under which HTTP without TLS is used, besides IP addresses, localhost and the name of this machine.
    Other names are refused, because sites could choose them."""
    insecure: Annotated[bool, Option()] = False
    """Allow addresses that other machines can reach, without TLS."""
    tls_cert: Annotated[Path | None, Option("FILE")] = None
    """Certificate of the service and those of its authorities, in PEM. With it, TCP addresses use TLS
    (docs/security.md). A file that is replaced counts for new connections at once."""
    tls_key: Annotated[Path | None, Option("FILE")] = None
    """Private key of the certificate, in PEM, without a passphrase."""
    tls_client_ca: Annotated[Path | None, Option("FILE")] = None
    """Certificates of the authorities of clients, in PEM. With it, each client on TCP must have a certificate of one of
    them."""
    tokens: Annotated[Path | None, Option("FILE")] = None
    """Names and digests of bearer tokens, as `nnhal token create` prints them (docs/identities.md). A file that is
    replaced counts at once: a token that is no longer in it ends its sessions."""
    jwt_keys: Annotated[str | None, Option("SOURCE")] = None
    """JSON Web Key Set with the public keys of the issuer of tokens: a file, or a URL of https. It needs `jwt_issuer`
    and `jwt_audience`."""
    jwt_issuer: Annotated[str | None, Option("TEXT")] = None
    """Issuer that JSON Web Tokens must name (claim iss)."""
    jwt_audience: Annotated[str | None, Option("TEXT")] = None
    """Audience that JSON Web Tokens must name (claim aud): this service."""
    identify_users: Annotated[bool, Option()] = False
    """Identify clients on this machine that have neither a token nor a certificate by their user."""
    policy: Annotated[Policy, Option("JSON")] = Policy()
    """Rights and quotas of each identity: tables `policy.default` and `policy.identities."KIND:NAME"`
    (docs/identities.md)."""
    workers: Annotated[int, Option("N")] = Field(default=1, ge=1, le=64)
    """Number of worker processes, or auto: one for every two cores. Each serves some of the clients, and is replaced if
    it crashes or hangs."""
    worker_per_identity: Annotated[bool | None, Option()] = None
    """Start a worker for each client, an identity or a host, when it opens its first session (docs/workers.md). By
    default, this is for identities, and those whose clients do not follow redirects share the others."""
    private_workers: Annotated[int, Option("N")] = Field(default=128, ge=0, le=192)
    """Number of workers that serve one client each, at most: see `worker_per_identity`."""
    probe: Annotated[bool, Option()] = False
    """Prepare and run each new model in a process of its own first, so that one that crashes an engine disturbs no
    client (docs/workers.md). Its preparation takes longer."""
    heartbeat_timeout_s: Annotated[float, Option("S")] = Field(default=10.0, gt=0)
    """Seconds without a sign of life after which a worker is replaced."""
    backend_timeout_s: Annotated[float, Option("S")] = Field(default=30.0, gt=0)
    """Seconds that a plug-in has for one call to compile, load, save or execute a part of a model, and at most 5 for
    another call. If it takes longer, it is not used until the call returns (docs/backends.md)."""
    backends: Annotated[tuple[str, ...], Option("NAMES")] = ("CpuAcc", "CpuRef")
    """Backends in order of preference."""
    merge_partitions: Annotated[bool, Option()] = True
    """Merge small partitions into neighbors on other backends (docs/placement.md). Without it, each backend runs all
    operations that it supports: for tests of a backend."""
    allocator: Annotated[AllocatorName, Option("KIND")] = "default"
    """Memory for tensors, for backends that can use it (docs/backends.md): huge-pages, which need fewer entries of the
    TLB, or locked, which is never swapped out. `nnhal backends` tells which backends do."""
    disabled_extensions: Annotated[tuple[str, ...], Option("NAMES", name="no-extension")] = ()
    """Vendor extensions of the backends that the devices do not support, for example org.nnhal.litert or litert. Its
    operations run LiteRT on TensorFlow Lite operators that clients send (docs/extensions.md)."""
    dynamic_backends_path: Annotated[str, Option("FOLDERS")] = Field(default_factory=default_backend_folders)
    """Folders with backends to load: absolute paths, separated by colons (docs/backends.md). Their backends precede the
    built-in ones, unless `backends` names the backends to use."""
    devices: Annotated[tuple[str, ...], Option("NAME[=BACKENDS]", "device", is_repeated=True)] = Field(
        default=("nnhal",), min_length=1
    )
    """Names of the devices, the default first. NAME=CpuAcc,CpuRef gives a device backends of its own, in order of
    preference; a name alone stands for those of `backends`."""
    device_types: Annotated[dict[str, str], Option("NAME=TYPE", "device-type", is_repeated=True)] = {}
    """Types that devices report: CPU, GPU, ACCELERATOR or OTHER, by name of the device. Without it, a device has the
    type of its first backend."""
    backend_options: Annotated[
        dict[str, dict[str, str]], Option("ID.KEY=VALUE", "backend-option", is_repeated=True)
    ] = {}
    """Options of backends, by id and key, for example Npu.threads=4 (docs/backends.md). DEVICE/ID.KEY=VALUE is for the
    backend of one device."""
    threads: Annotated[int, Option("N")] = Field(default=512, ge=4)
    """Calls that may be in progress at once, except uploads and reads."""
    transfers: Annotated[int, Option("N")] = Field(default=32, ge=1)
    """Uploads and reads that may be in progress at once."""
    transfer_idle_s: Annotated[float, Option("S")] = Field(default=30.0, gt=0)
    """Seconds until an upload, read or response whose client has stalled is cancelled."""
    idle_thread_s: Annotated[float, Option("S")] = Field(default=10.0, gt=0)
    """Seconds that an idle thread waits for the next call before it ends."""
    session_grace_s: Annotated[float, Option("S")] = Field(default=10.0, ge=0)
    """Seconds that a session outlives its connection."""
    keepalive_s: Annotated[float, Option("S")] = Field(default=20.0, gt=0)
    """Seconds between pings that detect dead connections."""
    stop_grace_s: Annotated[float, Option("S")] = Field(default=10.0, ge=0)
    """Seconds that running calls may take to finish when the service stops."""
    process_bytes: Annotated[int, Option("N")] = Field(default=0, ge=0)
    """Memory that a worker may allocate, in bytes; 0: see docs/limits.md."""
    data_users: Annotated[tuple[int, ...], Option("IDS")] = ()
    """Ids of other users who may share memory with the service on the same machine."""
    cache_dir: Annotated[Path, Option("DIR")] = Field(default_factory=default_root)
    """Directory of the model cache; private to this user."""
    cache_bytes: Annotated[int, Option("N")] = Field(default=DEFAULT_BYTES, ge=0)
    """Largest size of the model cache; 0 disables it."""
    cache_key_file: Annotated[Path | None, Option("FILE")] = None
    """File with 32 secret bytes that seal saved models, for machines that share a cache. Without it, each cache
    directory has its own key."""
    cache_share: Annotated[str | None, Option("URL")] = None
    """Store behind the cache that several services use (docs/cache.md): a folder, or a URL for fsspec such as
    s3://BUCKET/FOLDER, which needs the extra `share`. It needs `cache_key_file`. Default: none."""
    cache_share_bytes: Annotated[int, Option("N")] = Field(default=64 * 2**30, ge=0)
    """Size to which this service limits the store; 0 if the store does that itself."""
    cache_share_timeout_s: Annotated[float, Option("S")] = Field(default=5.0, gt=0)
    """Seconds that a preparation waits for the store, before it compiles the model."""
    warm: Annotated[int, Option("N")] = Field(default=0, ge=0)
    """Number of saved models to prepare at start: the most used ones."""
    models: Annotated[str | None, Option("FOLDER_OR_URL")] = None
    """Models that clients use by their names (docs/names.md): a folder, or a URL for fsspec such as s3://BUCKET/FOLDER,
    which needs the extra `share`, and whose models are copied. Default: none."""
    models_bytes: Annotated[int, Option("N")] = Field(default=64 * 2**30, ge=0)
    """Size to which the copies of the models at a URL are limited."""
    models_push: Annotated[bool, Option()] = False
    """Let clients push models into the folder, pull and remove them, as the policy says. The sandbox then lets workers
    write the folder."""
    models_poll_s: Annotated[float, Option("S")] = Field(default=2.0, gt=0)
    """Seconds between two looks for changes of the models; more if it takes long to list those at a URL."""
    models_shm: Annotated[bool, Option()] = False
    """Use shared memory that clients of the Open Inference Protocol register: files below /dev/shm of their own users
    (docs/names.md). docs/security.md tells what this allows."""
    state_dir: Annotated[Path, Option("DIR")] = Field(default_factory=default_state)
    """Directory of the performance figures that the service measures; private to this user."""
    fleet_members: Annotated[Path | None, Option("FILE")] = None
    """File with the members of the fleet that the service belongs to, which `nnhal fleet` writes (docs/fleet.md). New
    sessions are sent to the best member."""
    fleet_peers: Annotated[str | None, Option("ADDRS")] = None
    """Services that form a fleet without Ray (docs/fleet.md): dns:///NAME:PORT, where NAME has the addresses of all of
    them in DNS, or a list of addresses. They are addresses of administrations (`admin_listen`). New sessions are sent
    to the best member."""
    record: Annotated[Path | None, Option("FOLDER")] = None
    """Folder for recordings of executions (docs/recording.md); private to this user. Default: no recordings."""
    record_share: Annotated[float, Option("SHARE")] = Field(default=0.01, ge=0, le=1)
    """Part of the executions to record. With 0, an operator can start to record later."""
    record_identities: Annotated[tuple[str, ...], Option("NAMES")] = ()
    """Identities whose executions are recorded, for example token:alice. Default: all."""
    record_models: Annotated[tuple[str, ...], Option("MODELS")] = ()
    """Models whose executions are recorded: names in the folder of models, such as detector or detector/3, or first
    digits of digests. Default: all."""
    record_devices: Annotated[tuple[str, ...], Option("NAMES")] = ()
    """Devices whose executions are recorded. Default: all."""
    record_values: Annotated[bool, Option()] = True
    """Record the values of inputs and outputs. Without them, records have shapes, times and digests."""
    record_bytes: Annotated[int, Option("N")] = Field(default=4 * 2**30, ge=2**20)
    """Size to which the folder is limited. The oldest recordings go first."""
    record_days: Annotated[float, Option("N")] = Field(default=7.0, gt=0)
    """Age in days at which recordings are removed."""
    shadow: Annotated[str | None, Option("TARGET|BACKENDS")] = Field(default=None, min_length=1)
    """Shadow that repeats a part of the executions for comparison (docs/recording.md): an address such as HOST:PORT,
    unix:PATH or grpcs://HOST:PORT, or backends in order of preference. It gets values of clients. Default: none."""
    shadow_share: Annotated[float, Option("SHARE")] = Field(default=0.1, ge=0, le=1)
    """Part of the executions that the shadow repeats, as far as it keeps up. With 0, an operator can start it later."""
    shadow_identities: Annotated[tuple[str, ...], Option("NAMES")] = ()
    """Identities whose executions the shadow repeats. Default: all."""
    shadow_models: Annotated[tuple[str, ...], Option("MODELS")] = ()
    """Models whose executions the shadow repeats, like record_models. Default: all."""
    shadow_devices: Annotated[tuple[str, ...], Option("NAMES")] = ()
    """Devices whose executions the shadow repeats. Default: all."""
    sandbox: Annotated[SandboxMode, Option("MODE")] = "on"
    """Sandbox of the processes that run models (docs/security.md): on, off, or network, in which they may connect to
    other processes and machines."""
    sandbox_paths: Annotated[tuple[Path, ...], Option("PATH", "sandbox-path", is_repeated=True)] = ()
    """Files and folders that plug-ins may read and write in the sandbox, such as devices: absolute paths."""
    limits: Annotated[dict[str, int], Option("NAME=VALUE", "limit", is_repeated=True)] = {}
    """Limits that differ from their default, by name (docs/limits.md)."""
    log_level: Annotated[LogLevel, Option("LEVEL")] = "INFO"
    """Lowest severity to log to stderr: DEBUG, INFO, WARNING or ERROR."""
    log_format: Annotated[LogFormat, Option("FORMAT")] = "text"
    """Format of the log: text for people, or json for programs; one line for each event."""

    tracing: Annotated[bool, Option()] = False
    """Send traces of calls to a collector of OpenTelemetry (docs/metrics.md). It needs the extra `tracing`; the
    variables OTEL_* choose the collector. Workers may connect to other machines then."""
    trace_ratio: Annotated[float, Option("RATIO")] = Field(default=0.0, ge=0, le=1)
    """Share of the calls to trace whose client does not ask for it. Calls of clients that trace are always traced."""
    trace_operations: Annotated[bool, Option()] = False
    """Show operations in traces. Traced calls are slower then, because CpuAcc runs operations one by one
    (docs/tracing.md)."""

    @property
    def needs_identity(self) -> bool:
        """True if clients can authenticate. Those that do not then need the permission of the policy."""
        ways = (self.tokens, self.jwt_keys, self.tls_client_ca)
        return self.identify_users or any(way is not None for way in ways)

    @property
    def uses_cache_share(self) -> bool:
        """True if the service has a process for the cache share."""
        return self.cache_share is not None and self.cache_bytes > 0

    @property
    def models_url(self) -> str | None:
        """URL of the models by name; None if they are in a folder, or there are none."""
        return self.models if self.models is not None and directory_of(self.models) is None else None

    @property
    def models_folder(self) -> Path | None:
        """Folder with the models by name, or with copies of those at the URL; None if there are none."""
        if self.models is None:
            return None
        return directory_of(self.models) or self.state_dir / f"models-{sha256(self.models.encode()).hexdigest()[:16]}"

    @property
    def shadow_target(self) -> str | None:
        """Address of the shadow; None if there is none, or it has backends."""
        return self.shadow if self.shadow is not None and ":" in self.shadow else None

    def check_exposure(self) -> None:
        """Check that TLS is complete; and that only this machine can reach the addresses, if there is no TLS.

        Raises:
            ValueError: a part of TLS is missing; other machines can reach an address, and the operator has not allowed
                it; or the administration has a TCP address, but no TLS or identities.
        """
        if (self.tls_cert is None) != (self.tls_key is None):
            given, missing = ("tls-cert", "tls-key") if self.tls_key is None else ("tls-key", "tls-cert")
            raise ValueError(f"--{given} without --{missing}; TLS needs a certificate and its private key")
        if self.tls_client_ca is not None and self.tls_cert is None:
            raise ValueError("--tls-client-ca without --tls-cert and --tls-key; only TLS has certificates of clients")
        for text in (*self.listen, *([self.http_listen] if self.http_listen else [])):
            if not Address.parse(text).is_local and not self.insecure and self.tls_cert is None:
                raise ValueError(
                    f"{text} can be reached from other machines; that needs TLS (--tls-cert, --tls-key) or --insecure"
                )
        if self.admin_tcp_listen is not None and (self.tls_cert is None or not self.needs_identity):
            raise ValueError(
                f"--admin-listen {self.admin_listen}: a TCP address needs TLS (--tls-cert, --tls-key) and identities "
                "(docs/security.md)"
            )

    def check_models(self) -> None:
        """Check that the folder with models exists.

        Raises:
            ValueError: there is no such folder.
        """
        if self.models_folder is not None and self.models_url is None and not self.models_folder.is_dir():
            raise ValueError(f"--models {self.models}: there is no such folder")

    def members_file(self, supervisor: int) -> Path | None:
        """Return the file with the members of the fleet, by the id of the supervisor; None without a fleet."""
        return self.fleet_members if self.fleet_peers is None else self.state_dir / f"members-{supervisor}.json"

    def choices_file(self, supervisor: int) -> Path:
        """Return the file with the choices for models by name that the workers of a supervisor share."""
        return self.state_dir / f"models-{supervisor}.json"

    @property
    def admin_tcp_listen(self) -> str | None:
        """TCP address of the administration; None if it has none."""
        text = self.admin_listen
        return text if text not in (None, "none") and Address.parse(text).kind == "tcp" else None

    @field_validator("*", mode="before")
    @classmethod
    def _split_list(cls, value: object, info: ValidationInfo) -> object:
        """Parse the text of a list: JSON if it starts with a bracket, or else elements with commas between them.

        Between devices that have lists of backends, there are semicolons.
        """
        is_list = get_origin(cls.model_fields[info.field_name or ""].annotation) is tuple
        if not is_list or not isinstance(value, str):
            return value
        if value.lstrip().startswith("["):
            return _parse_json(value)
        separator = ";" if info.field_name == "devices" and "=" in value else ","
        return tuple(element.strip() for element in value.split(separator))

    @field_validator("listen")
    @classmethod
    def _require_addresses(cls, addresses: tuple[str, ...]) -> tuple[str, ...]:
        for text in addresses:
            Address.parse(text)
        return addresses

    @field_validator("admin_listen")
    @classmethod
    def _require_address(cls, address: str | None) -> str | None:
        if address not in (None, "none"):
            Address.parse(address)
        return address

    @field_validator("http_listen")
    @classmethod
    def _require_tcp(cls, address: str | None) -> str | None:
        if address is not None and Address.parse(address).kind != "tcp":
            raise ValueError(f"invalid address {address!r}; expected HOST:PORT")
        return address

    @field_validator("sandbox_paths")
    @classmethod
    def _require_absolute(cls, paths: tuple[Path, ...]) -> tuple[Path, ...]:
        for path in paths:
            if not path.is_absolute():
                raise ValueError(f"invalid path {str(path)!r}; expected an absolute path")
        return paths

    @field_validator("devices")
    @classmethod
    def _require_different_names(cls, devices: tuple[str, ...]) -> tuple[str, ...]:
        names = [split_device(device)[0] for device in devices]
        if "" in names:
            raise ValueError("the name of a device is empty")
        if len(set(names)) < len(names):
            raise ValueError(f"{max(names, key=names.count)!r} is given twice; expected different names")
        return devices

    @field_validator("device_types", mode="before")
    @classmethod
    def _split_types(cls, value: object) -> object:
        """Parse the text of types: JSON if it starts with a brace, or else NAME=TYPE with commas between them."""
        return _parse_pairs(value, "device type", "NAME=TYPE")

    @field_validator("device_types")
    @classmethod
    def _require_types(cls, types: dict[str, str], info: ValidationInfo) -> dict[str, str]:
        for device, type_ in types.items():
            _require_device(device, info)
            if type_.upper() not in DeviceType.__members__:
                raise ValueError(f"invalid type {type_!r} of {device}; expected {', '.join(DeviceType.__members__)}")
        return {device: type_.upper() for device, type_ in types.items()}

    @field_validator("backend_options", mode="before")
    @classmethod
    def _split_options(cls, value: object) -> object:
        """Parse the text of options: JSON if it starts with a brace, or else ID.KEY=VALUE with commas between them."""
        pairs = _parse_pairs(value, "option", "ID.KEY=VALUE")
        if not isinstance(pairs, dict):
            return pairs
        options: dict[str, dict[str, object]] = {}
        for name, item in pairs.items():
            if isinstance(item, dict):
                options.setdefault(name, {}).update({key: _option_text(text) for key, text in item.items()})
                continue
            device, slash, rest = name.rpartition("/")
            id_, _, key = rest.partition(".")
            if not id_ or not key:
                raise ValueError(f"invalid option {name!r}; expected ID.KEY=VALUE, or DEVICE/ID.KEY=VALUE")
            options.setdefault(f"{device}{slash}{id_}", {})[key] = _option_text(item)
        return options

    @field_validator("backend_options")
    @classmethod
    def _require_devices(cls, options: dict[str, dict[str, str]], info: ValidationInfo) -> dict[str, dict[str, str]]:
        for name in options:
            if "/" in name:
                _require_device(name.rpartition("/")[0], info)
        return options

    @field_validator("policy", mode="before")
    @classmethod
    def _parse_policy(cls, value: object) -> object:
        return _parse_json(value) if isinstance(value, str) else value

    @model_validator(mode="after")
    def _require_issuer(self) -> "Settings":
        given = (self.jwt_keys, self.jwt_issuer, self.jwt_audience)
        if any(given) and not all(given):
            raise ValueError("jwt_keys, jwt_issuer and jwt_audience belong together; a token for others is not for us")
        return self

    @model_validator(mode="after")
    def _require_key(self) -> "Settings":
        if self.cache_share is not None:
            if self.cache_key_file is None:
                raise ValueError(
                    "--cache-share needs --cache-key-file: entries of a share are sealed with a key that all its "
                    "services have (docs/cache.md)"
                )
            check_url(self.cache_share, "--cache-share")
        return self

    @model_validator(mode="after")
    def _check_models(self) -> "Settings":
        if self.models is not None:
            check_url(self.models, "--models")
        if self.models_url is not None and self.models_push:
            raise ValueError(f"models_push needs a folder of models; put models into {self.models_url}")
        return self

    @model_validator(mode="after")
    def _check_peers(self) -> "Settings":
        if self.fleet_peers is not None:
            PeerTarget.parse(self.fleet_peers)
            if self.fleet_members is not None:
                raise ValueError("fleet_peers and fleet_members exclude each other; both name the members of the fleet")
            if self.admin_listen == "none":
                raise ValueError("fleet_peers needs the administration: members read the state of each other there")
        return self

    @field_validator("limits", mode="before")
    @classmethod
    def _split_limits(cls, value: object) -> object:
        """Parse the text of limits: JSON if it starts with a brace, or else NAME=VALUE with commas between them."""
        pairs = _parse_pairs(value, "limit", "NAME=VALUE")
        if pairs is value or not isinstance(pairs, dict):
            return pairs
        for name, number in pairs.items():
            if isinstance(number, str) and not number.isdecimal():
                raise ValueError(f"invalid limit {f'{name}={number}'!r}; expected NAME=VALUE")
        return pairs

    @field_validator("workers", mode="before")
    @classmethod
    def _count_workers(cls, value: object) -> object:
        return max(1, available_cpus() // 2) if value == "auto" else value

    @field_validator("log_level", mode="before")
    @classmethod
    def _ignore_case(cls, value: object) -> object:
        return value.upper() if isinstance(value, str) and value.upper() in get_args(LogLevel) else value


def _parse_json(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError as error:
        raise ValueError(f"invalid JSON: {error}") from error


def _parse_pairs(value: object, what: str, form: str) -> object:
    """Return the pairs of a text: JSON if it starts with a brace, or else with commas between them. Or of a list."""
    if isinstance(value, str):
        if value.lstrip().startswith("{"):
            return _parse_json(value)
        value = value.split(",") if value else []
    if not isinstance(value, list):
        return value
    pairs = {}
    for text in value:
        name, equals, item = str(text).partition("=")
        if not name.strip() or not equals:
            raise ValueError(f"invalid {what} {text!r}; expected {form}")
        pairs[name.strip()] = item.strip()
    return pairs


def _option_text(value: object) -> object:
    """Return a value of TOML or JSON as text, in which form backends get options."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else value


def _require_device(name: str, info: ValidationInfo) -> None:
    names = [split_device(device)[0] for device in info.data.get("devices", ())]
    if names and name not in names:
        raise ValueError(f"there is no device {name!r}; there are {', '.join(names)}")


def split_device(text: str) -> tuple[str, tuple[str, ...] | None]:
    """Return the name in a value of `devices`, and its backends; None if it has those of all devices."""
    name, equals, backends = text.partition("=")
    ids = tuple(id_.strip() for id_ in backends.split(","))
    return name.strip(), ids if equals else None
