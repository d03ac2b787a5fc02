"""Profile of a sandbox: what a worker with given settings needs."""

import logging
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import nnhal
import nnhal_cache
import nnhal_driver
import nnhal_service
from nnhal.address import Address
from nnhal_service.identity.jwks import is_url
from nnhal_service.log import event
from nnhal_service.open_inference.shared_memory import FOLDER as SHARED_MEMORY
from nnhal_service.settings import Settings, split_device
from nnhal_service.tcp_port import is_ip
from nnhal_service.tls.folders import is_shared, replacement_folders

_SYSTEM = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/proc", "/sys"),
    *("/nix/store", "/gnu/store", "/run/opengl-driver"),
)
"""Folders with programs and libraries, and what the kernel tells."""
_CONFIGURATION = (
    *("OpenCL", "alternatives", "ca-certificates", "drirc", "fonts", "gai.conf", "glvnd", "group", "host.conf"),
    *("hostname", "hosts", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "locale.alias", "locale.conf", "localtime"),
    *("machine-id", "mime.types", "nsswitch.conf", "nvidia", "os-release", "passwd", "pki/ca-trust", "pki/tls/certs"),
    *("protocols", "resolv.conf", "services", "ssl/certs", "ssl/openssl.cnf", "timezone", "vulkan"),
)
"""Files and folders of /etc that libraries read. Others may hold secrets, for example if the service runs as root."""
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
_LIBRARY_PATHS = ("LD_LIBRARY_PATH", "OCL_ICD_VENDORS", "OCL_ICD_FILENAMES", "VK_ICD_FILENAMES", "VK_DRIVER_FILES")
_STORE_FILES = (
    *("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CA_BUNDLE"),
    *("GOOGLE_APPLICATION_CREDENTIALS", "FSSPEC_CONFIG_DIR", "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE"),
)
"""Variables that name files of stores."""
_FIRST_UNPRIVILEGED = Path("/proc/sys/net/ipv4/ip_unprivileged_port_start")
_SHARED = "{} cannot be followed when it is replaced, because {} has files of others; give it a folder of its own"
_TRACING = "tracing needs the network for its collector"
_NAMED = "to listen on {} needs the network for its name; give an IP address to forbid connections to others"


@dataclass(frozen=True, slots=True)
class SandboxProfile:
    """Everything that a process may use. All paths are absolute; those that do not exist are ignored.

    Attributes:
        system: files to read, and folders to read from and to run programs from, that belong to the system.
        readable: the same, for Python, the service and its plug-ins.
        writable: files and folders to write.
        devices: devices, and files and folders that the operator has added, for reading, writing and requests.
        socket_folders: folders in which it creates Unix sockets.
        ports: TCP ports to bind; None for all.
        tcp: whether it listens on TCP ports.
        outgoing: whether it may connect to others.
        privileged_ports: whether some ports need the right to bind them.
        locks_memory: whether it locks memory.
    """

    system: tuple[Path, ...] = ()
    readable: tuple[Path, ...] = ()
    writable: tuple[Path, ...] = ()
    devices: tuple[Path, ...] = ()
    socket_folders: tuple[Path, ...] = ()
    ports: tuple[int, ...] | None = ()
    tcp: bool = False
    outgoing: bool = False
    privileged_ports: bool = False
    locks_memory: bool = False


def profile_of(settings: Settings, listen: Sequence[str], temporary: Path) -> SandboxProfile:
    """Return what a worker needs that binds addresses, with its folder for temporary files.

    Creates its cache and state directories, and that of recordings, since later it cannot.
    """
    addresses = [Address.parse(text) for text in listen]
    tcp = [address for address in addresses if address.kind == "tcp"]
    named = [address for address in tcp if address.host != "localhost" and not is_ip(address.host)]
    ports = {address.port for address in tcp}
    unprivileged = int(_FIRST_UNPRIVILEGED.read_text()) if _FIRST_UNPRIVILEGED.exists() else 1024
    is_any = 0 in ports and any(not is_ip(address.host) for address in tcp)  # both families get the same free port
    for address in named:
        event("sandbox-open", logging.WARNING, reason=_NAMED.format(address.host))
    if settings.tracing:
        event("sandbox-open", logging.WARNING, reason=_TRACING)
    folders = [settings.state_dir, *([settings.cache_dir] if settings.cache_bytes else [])]
    changes_models = settings.models_push or settings.models_url is not None  # copies are below the state directory
    folders += [settings.models_folder] if settings.models_folder is not None and changes_models else []
    folders += [settings.record] if settings.record is not None else []
    for folder in folders:
        _create(folder)
    shared = [SHARED_MEMORY] if settings.models_shm else []
    return SandboxProfile(
        system=_absolute([*map(Path, _SYSTEM), *(Path("/etc", name) for name in _CONFIGURATION)]),
        readable=_absolute([*_python(), *_plugins(settings), *_followed(_replaced_files(settings, tls=bool(tcp)))]),
        writable=_absolute([*folders, temporary]),
        devices=_absolute([*map(Path, _DEVICES), *_gpus(settings), *shared, *settings.sandbox_paths]),
        socket_folders=_absolute([Path(address.path).parent for address in addresses if address.kind == "unix"]),
        # gRPC binds a free port of ::1, to find out whether the machine has IPv6
        ports=None if is_any else tuple(sorted(ports | {0} if tcp else ())),
        tcp=bool(tcp),
        outgoing=settings.sandbox == "network" or bool(named) or settings.tracing,
        privileged_ports=any(0 < port < unprivileged for port in ports),
        locks_memory=settings.allocator == "locked",
    )


def store_profile(settings: Settings, folders: Iterable[Path], *, outgoing: bool) -> SandboxProfile:
    """Return what a process needs that uses a store, and writes some folders: no cache, no key, no files of clients.

    `outgoing` tells whether the store is on the network.
    """
    return SandboxProfile(
        system=_absolute([*map(Path, _SYSTEM), *(Path("/etc", name) for name in _CONFIGURATION)]),
        readable=_absolute([*_python(), *_store_configuration()]),
        writable=_absolute(folders),
        devices=_absolute([*map(Path, _DEVICES), *settings.sandbox_paths]),
        outgoing=outgoing,
    )


def engine_profile() -> SandboxProfile:
    """Return what the process of an engine needs: it writes no file, and reads none of the service."""
    return SandboxProfile(
        system=_absolute(map(Path, _SYSTEM)), readable=_absolute(_python()), devices=_absolute(map(Path, _DEVICES))
    )


def _store_configuration() -> Iterator[Path]:
    """Yield files with the configuration and the credentials of stores."""
    home = Path.home()
    yield from (home / ".aws", home / ".config" / "fsspec", home / ".config" / "gcloud", home / ".azure")
    yield from map(Path, filter(None, (os.environ.get(name) for name in _STORE_FILES)))


def _create(folder: Path) -> None:
    """Create a private folder. If that fails, its owner reports it when it writes the first file."""
    with suppress(OSError):
        folder.mkdir(0o700, parents=True, exist_ok=True)


def _python() -> Iterator[Path]:
    """Yield the folders of Python and of its packages, except a home folder or one that contains it."""
    yield Path(sys.executable)
    home = Path.home()
    # without -P, the first folder is that of the script, or the current one
    searched = sys.path if sys.flags.safe_path else sys.path[1:]
    for text in {sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix, *searched}:
        path = Path(text)
        if path.is_absolute() and path != home and path not in home.parents:
            yield path
    for package in (nnhal, nnhal_cache, nnhal_driver, nnhal_service):
        yield from map(Path, package.__path__)


def _plugins(settings: Settings) -> Iterator[Path]:
    """Yield the folders of plug-ins, those of their libraries, the key of the cache, and the models by name."""
    for text in (settings.dynamic_backends_path, *(os.environ.get(name, "") for name in _LIBRARY_PATHS)):
        yield from map(Path, filter(None, text.split(":")))
    if settings.cache_key_file is not None:
        yield settings.cache_key_file
    if settings.models_folder is not None:
        yield settings.models_folder


def _gpus(settings: Settings) -> Iterator[Path]:
    """Yield the devices of GPUs, if a device of the service uses GpuAcc."""
    listed = [settings.backends, *(split_device(text)[1] or () for text in settings.devices)]
    if any("GpuAcc" in backends for backends in listed):
        yield Path("/dev/dri")
        yield from Path("/dev").glob("nvidia*")


def _replaced_files(settings: Settings, *, tls: bool) -> Iterator[Path]:
    """Yield the files of TLS, if it is used, those with tokens and keys of clients, and the members of the fleet."""
    if tls:
        yield from filter(None, (settings.tls_cert, settings.tls_key, settings.tls_client_ca))
    if settings.tokens is not None:
        yield settings.tokens
    if settings.jwt_keys is not None and not is_url(settings.jwt_keys):
        yield Path(settings.jwt_keys)
    if settings.fleet_members is not None:
        yield settings.fleet_members


def _followed(paths: Iterable[Path]) -> Iterator[Path]:
    """Yield files that may be replaced, and the folders where that happens, unless these have contents of others."""
    for path in paths:
        yield path
        for folder in replacement_folders(path):
            if not is_shared(folder):
                yield folder
            elif folder == path.absolute().parent:
                event("sandbox-file", logging.WARNING, reason=_SHARED.format(path, folder))


def _absolute(paths: Iterable[Path]) -> tuple[Path, ...]:
    return tuple(dict.fromkeys(Path(os.path.abspath(path)) for path in paths))
