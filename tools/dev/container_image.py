"""The container image without a container engine: `python -m tools.dev.container_image FOLDER`.

Installs Debian 12 with debootstrap as the base image, and builds the Dockerfile on it with buildah. FOLDER gets the
root file system of the image (`root`) and its configuration (`config.json`). Needs root, debootstrap and buildah, and
Debian's packages and PyPI; takes some minutes. `command_in` runs commands in it, with bubblewrap.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = ("buildah", "debootstrap", "bwrap", "setpriv")
"""Programs that it needs."""
BASE = "docker.io/library/debian:bookworm-slim"
"""Base image of the Dockerfile."""
_SUITE = "bookworm"
_MIRROR = "http://deb.debian.org/debian"
_CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
"""Certificates of this machine, which a proxy before PyPI may need."""
_CAPABILITIES = ("CAP_SETUID", "CAP_SETGID", "CAP_SETPCAP", "CAP_SYS_CHROOT")


def build(folder: Path, source: Path = ROOT) -> None:
    """Build the image.

    Args:
        folder: gets its root file system and its configuration. It must be empty or missing.
        source: the repository, or a copy of its files.

    Raises:
        subprocess.CalledProcessError: a step has failed. Its output has been printed.
    """
    base = folder / "base"
    base.mkdir(parents=True)
    _run("debootstrap", "--variant=minbase", _SUITE, base, _MIRROR)
    for path in (*base.glob("var/cache/apt/archives/*.deb"), *base.glob("var/lib/apt/lists/*_*")):
        path.unlink()
    container = _buildah(folder, "from", "scratch")
    mounted = _buildah(folder, "mount", container)
    _run("cp", "--archive", f"{base}/.", mounted)
    _buildah(folder, "commit", "--rm", container, BASE)
    configuration = folder / "pip.conf"
    configuration.write_text("[global]\ncert = /etc/machine-certificates.crt\n")
    volumes = (f"{configuration}:/etc/pip.conf:ro", f"{_CERTIFICATES}:/etc/machine-certificates.crt:ro")
    options = [option for volume in volumes if _CERTIFICATES.exists() for option in ("--volume", volume)]
    isolation = ("--isolation", "chroot", "--network", "host", "--pull-never")
    _buildah(folder, "bud", "--format", "docker", *isolation, *options, "--tag", "nnhal", source)
    container = _buildah(folder, "from", "--pull-never", "localhost/nnhal")
    _run("cp", "--archive", f"{_buildah(folder, 'mount', container)}/.", folder / "root")
    inspected = json.loads(_buildah(folder, "inspect", "--type", "image", "localhost/nnhal"))
    (folder / "config.json").write_text(json.dumps(inspected["Docker"]["config"], indent=1) + "\n")
    _buildah(folder, "rm", "--all")


def command_in(
    folder: Path, user: int, mounts: Mapping[str, Path], variables: Mapping[str, str], program: Sequence[str] = ()
) -> list[str]:
    """Return the command line that runs a program in the image: read-only, with few rights, and with its variables.

    `user` is the id of the user and of the group. `mounts` are folders of this machine that the program may write, by
    their path inside. `variables` replace those of the image. The default of `program` is the service.
    """
    config = json.loads((folder / "config.json").read_text())
    program = program or [*config["Entrypoint"], *config["Cmd"]]
    environment = dict(variable.split("=", 1) for variable in config["Env"]) | dict(variables)
    command = ["bwrap", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--die-with-parent", "--clearenv"]
    for name, value in environment.items():
        command += ["--setenv", name, value]
    command += ["--ro-bind", str(folder / "root"), "/", "--dev", "/dev", "--proc", "/proc"]
    for inside, outside in mounts.items():
        command += ["--bind", str(outside), inside]
    command += ["--chdir", config["WorkingDir"]]
    for capability in _CAPABILITIES:
        command += ["--cap-add", capability]
    rights = ["--clear-groups", "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs"]
    return [*command, "setpriv", f"--reuid={user}", f"--regid={user}", *rights, *program]


def _buildah(folder: Path, *arguments: object) -> str:
    store = ("--root", folder / "store", "--runroot", folder / "run")
    done = _run("buildah", *store, *arguments)
    return done.strip().splitlines()[-1] if "inspect" not in arguments else done


def _run(*command: object) -> str:
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.stderr.write(done.stdout[-4000:] + done.stderr[-4000:])
        done.check_returncode()
    return done.stdout


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="gets the image; must be empty or missing")
    build(parser.parse_args().folder.absolute())


if __name__ == "__main__":
    main()
