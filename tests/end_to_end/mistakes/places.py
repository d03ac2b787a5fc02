"""Files, addresses and environments of the mistakes in `table`."""

import os
import socket
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TypeAlias

import grpc
import numpy as np
from PIL import Image

from nnhal_tools.demo.digits import MODEL
from tests.end_to_end.mistakes.table import Mistake
from tests.other_server import listening

Places: TypeAlias = Mapping[str, object]
"""Values of the names in braces."""


@contextmanager
def open_places(service: str, folder: Path) -> Iterator[Places]:
    """Run servers of all kinds within the context, and yield their addresses.

    Args:
        service: the address of a service.
        folder: an empty folder.
    """
    other = grpc.server(ThreadPoolExecutor(1))
    port = other.add_insecure_port("127.0.0.1:0")
    other.start()
    with ExitStack() as stack:
        stack.callback(lambda: other.stop(0).wait())
        live = stack.enter_context(socket.socket(socket.AF_UNIX))
        live.bind(str(folder / "live"))
        live.listen()
        with socket.create_server(("127.0.0.1", 0)) as server:
            closed = server.getsockname()[1]
        yield {
            "digits": MODEL,
            "service": service,
            "busy": service,
            "live": folder / "live",
            "closed": f"127.0.0.1:{closed}",
            "ssh": stack.enter_context(listening(b"SSH-2.0-OpenSSH_9.2\r\n")),
            "grpc": f"127.0.0.1:{port}",
            "unreadable": _unreadable_file(folder),
        }


def _unreadable_file(folder: Path) -> str:
    """Return the path of a file that exists, and that this user cannot read."""
    if os.geteuid() == 0:  # whom no mode stops; nothing is mapped at the address 0
        return "/proc/self/mem"
    path = folder / "unreadable"
    path.touch(0)
    return str(path)


def write_files(folder: Path) -> None:
    """Write the files that mistakes refer to."""
    generator = np.random.default_rng(0)
    array = np.zeros((1, 8, 8, 1), np.float32)
    (folder / "folder").mkdir()
    (folder / "empty").touch(0o644)
    (folder / "empty").chmod(0o644)
    (folder / "text").write_text("one\ntwo\n")
    (folder / "binary").write_bytes(b"\xff" + generator.bytes(99))
    (folder / "truncated.tflite").write_bytes(MODEL.read_bytes()[:3000])
    np.save(folder / "input.npy", array)
    np.save(folder / "shape.npy", np.zeros((1, 9, 8, 1), np.float32))
    np.save(folder / "float64.npy", array.astype(np.float64))
    np.save(folder / "words.npy", np.array(["one", "two"]))
    np.save(folder / "objects.npy", np.array([{}], object), allow_pickle=True)
    np.savez(folder / "names.npz", images=array)
    (folder / "truncated.npz").write_bytes((folder / "names.npz").read_bytes()[:-10])
    (folder / "truncated.npy").write_bytes((folder / "input.npy").read_bytes()[:-10])
    Image.fromarray(generator.integers(0, 256, (64, 64), np.uint8)).save(folder / "image.png")
    (folder / "truncated.png").write_bytes((folder / "image.png").read_bytes()[:2000])
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(folder / "stale.sock"))


def environment_of(mistake: Mistake, folder: Path) -> dict[str, str]:
    """Return the variables of a command whose current folder is `folder`."""
    return {
        "HOME": str(folder),
        "NNHAL_CACHE_DIR": str(folder / "cache"),
        "NNHAL_STATE_DIR": str(folder / "state"),
        **mistake.environment,
    }
