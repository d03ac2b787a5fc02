"""Build of `libnnhal_delegate.so`."""

from pathlib import Path

from nnhal_ndk.build import NativeLibrary, build, find_or_build

DELEGATE = NativeLibrary("libnnhal_delegate.so", "nnhal_delegate", "delegate.c")


def build_delegate(folder: Path | None = None, *, flags: tuple[str, ...] = ()) -> Path:
    """Compile the library and return its path. See `nnhal_ndk.build.build`.

    Raises:
        BuildError: there is no compiler, or it fails.
    """
    return build(folder, library=DELEGATE, flags=flags)


def find_or_build_delegate() -> Path:
    """Return the library of this environment, and build it if there is none yet.

    Raises:
        BuildError: see `build_delegate`.
    """
    return find_or_build(DELEGATE)
