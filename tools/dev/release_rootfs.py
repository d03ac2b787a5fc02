"""The root file system of the container image, as a file of a release: `make release-rootfs`, after `make release`.

`python -m tools.dev.release_rootfs [FOLDER]` builds the image with `tools.dev.container_image`, which needs root,
debootstrap and buildah, and takes some minutes. It packs the image, unpacks the archive again, starts the service in it
with bubblewrap, and classifies a digit.

The same image gives the same bytes. Images differ if Debian has updated a package meanwhile, and etc/shadow has the day
of the build. The archive has Debian's own list of packages, and those of Python are pinned.
"""

import argparse
import gzip
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tools.dev import container_image, release
from tools.dev.release import ROOT, ReleaseError

_OF_THIS_MACHINE = ("etc/hostname", "etc/hosts", "etc/machine-id", "etc/resolv.conf", "var/cache/ldconfig/aux-cache")
"""Files that a container engine writes, or that differ with each build."""
_EMPTY = ("dev", "proc", "run", "sys", "tmp", "var/lib/apt/lists", "var/cache/apt", "var/log", "var/tmp")
_USER = 10001


def make(folder: Path, image: Path) -> Path:
    """Pack an image into the folder of its release, try it, and write the digests. Return the archive.

    Raises:
        ReleaseError: the image does not work.
    """
    archive = folder / f"nnhal-{release.find_version()}-rootfs.tar.gz"
    pack(image / "root", archive, int(release.git("log", "-1", "--format=%ct")))
    shutil.copyfile(image / "config.json", archive.with_name(archive.name.replace(".tar.gz", ".json")))
    with tempfile.TemporaryDirectory() as temporary:
        unpacked = Path(temporary)
        shutil.copyfile(image / "config.json", unpacked / "config.json")
        with tarfile.open(archive) as tar:
            tar.extractall(unpacked / "root", numeric_owner=True, filter="fully_trusted")
        try_image(unpacked)
    release.write_digests(folder)
    return archive


def pack(root: Path, archive: Path, time: int) -> None:
    """Write a file system into an archive whose bytes depend on its files only.

    Times after `time`, in seconds since 1970, become `time`: those are of the build.
    """

    def clean(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        entry.mtime = min(int(entry.mtime), time)
        entry.uname = entry.gname = ""
        return entry

    with (
        archive.open("wb") as file,
        gzip.GzipFile("", "wb", fileobj=file, mtime=0) as compressed,
        tarfile.open(fileobj=compressed, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for path in _contents(root):
            tar.add(path, str(path.relative_to(root)), recursive=False, filter=clean)


def _contents(root: Path) -> Iterator[Path]:
    """Yield the files and folders of an image, sorted."""
    for parent, folders, files in os.walk(root):
        relative = Path(parent).relative_to(root)
        if str(relative) in _EMPTY:
            folders.clear()
            continue
        folders.sort()
        for name in sorted((*folders, *files)):
            if str(relative / name) not in _OF_THIS_MACHINE:
                yield Path(parent, name)


def try_image(image: Path) -> None:
    """Start the service in an image, read-only and without root, and classify a digit there.

    Raises:
        ReleaseError: that fails. The message has the output.
    """
    with tempfile.TemporaryDirectory() as folder:
        mounts = {"/var/lib/nnhal": Path(folder, "volume"), "/tmp": Path(folder, "tmp")}
        for path in mounts.values():
            path.mkdir()
            os.chown(path, _USER, _USER)
        command = container_image.command_in(image, _USER, mounts, {"NNHAL_LISTEN": "unix:/tmp/nnhal.sock"})
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as service:
            assert service.stdout is not None
            output: list[str] = []
            try:
                for line in service.stdout:
                    output.append(line)
                    if line.startswith("listening on"):
                        trusted = {"NNHAL_SERVICE_USERS": str(_USER)}
                        release.run("-P", "-c", release.TRIAL, f"unix:{folder}/tmp/nnhal.sock", variables=trusted)
                        return
            finally:
                service.terminate()
        raise ReleaseError("the service in the image has ended:\n" + "".join(output))


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", default=ROOT / "dist", help="the files of the release")
    folder = parser.parse_args().folder.resolve()
    missing = [program for program in container_image.PROGRAMS if shutil.which(program) is None]
    if os.geteuid() != 0 or missing:
        parser.error(f"it needs root, and the packages of Debian for {', '.join(container_image.PROGRAMS)}")
    if not (folder / "SHA256SUMS").exists():
        parser.error(f"{folder} has no release: run `make release` first")
    try:
        with tempfile.TemporaryDirectory() as temporary:
            image = Path(temporary, "image")
            container_image.build(image, release.export(Path(temporary, "nnhal"), release.find_version()))
            print(make(folder, image))
    except ReleaseError as error:
        sys.exit(f"release: {error}")


if __name__ == "__main__":
    main()
