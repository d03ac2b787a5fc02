"""Key that seals saved models."""

from nnhal_cache.errors import CacheError
from nnhal_cache.key import load_or_create_key, read_key
from nnhal_service.log import event
from nnhal_service.settings import Settings


def load_key(settings: Settings) -> bytes | None:
    """Return the key that seals saved models; None, with a line in the log, if there is none.

    Without a key, the device creates one that only it knows.

    Raises:
        ValueError: the key file that the operator names cannot be used.
    """
    if settings.cache_key_file is not None:
        try:
            return read_key(settings.cache_key_file)
        except CacheError as error:
            raise ValueError(str(error)) from error
    if not settings.cache_bytes:
        return None
    try:
        return load_or_create_key(settings.cache_dir)
    except CacheError as error:
        event("cache-unusable", reason=error)
        return None
