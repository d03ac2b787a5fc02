"""Key that seals saved models."""

import logging

from nnhal_cache.errors import CacheError
from nnhal_cache.key import load_or_create_key, read_key
from nnhal_cache.store import Store
from nnhal_service.log import event
from nnhal_service.settings import Settings


def load_key(settings: Settings, store: Store) -> tuple[bytes | None, str]:
    """Return the key that seals saved models, and why the service cannot cache models, or "".

    If it cannot, the reason is logged. Without a key, the device creates one that only it knows.

    Raises:
        ValueError: the key file that the operator names cannot be used.
    """
    key = None
    if settings.cache_key_file is not None:
        try:
            key = read_key(settings.cache_key_file)
        except CacheError as error:
            raise ValueError(str(error)) from error
    try:
        store.require_enabled()
    except CacheError as error:
        return key, str(error)
    try:
        if key is None:
            key = load_or_create_key(settings.cache_dir)
        store.layout.create()
    except CacheError as error:
        event("cache-unusable", logging.WARNING, reason=error)
        return key, str(error)
    return key, ""
