"""Static files of the page. They are read once at start, so that no request reaches the file system."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from importlib.resources import files
from importlib.resources.abc import Traversable

from starlette.requests import Request
from starlette.responses import Response

_TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
    "txt": "text/plain; charset=utf-8",
}


@dataclass(frozen=True, slots=True)
class StaticFile:
    """A file of the page.

    Attributes:
        etag: quoted hash of the bytes.
    """

    body: bytes
    media_type: str
    etag: str

    def response(self, request: Request) -> Response:
        """Return the file, or 304 if the browser has it. Browsers ask each time, because they must not mix versions."""
        headers = {"cache-control": "no-cache", "etag": self.etag}
        if request.headers.get("if-none-match") == self.etag:
            return Response(status_code=304, headers=headers)
        return Response(self.body, media_type=self.media_type, headers=headers)


def load_static_files() -> Mapping[str, StaticFile]:
    """Return the files by their path, for example "views/models.js"."""
    return dict(_walk(files(__package__) / "static", ""))


def _walk(folder: Traversable, prefix: str) -> Iterator[tuple[str, StaticFile]]:
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _walk(entry, f"{prefix}{entry.name}/")
        elif media_type := _TYPES.get(entry.name.rpartition(".")[2]):
            body = entry.read_bytes()
            yield prefix + entry.name, StaticFile(body, media_type, f'"{sha256(body).hexdigest()[:20]}"')
