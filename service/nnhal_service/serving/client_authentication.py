"""Access to a service: how its clients authenticate, and what they may do, as the settings say."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from nnhal_driver.scheduling.quota_use import QuotaUse
from nnhal_service.failed_attempts import FailedAttempts
from nnhal_service.identity.accounts import Accounts, FindUse
from nnhal_service.identity.authentication import Authentication
from nnhal_service.identity.jwks import fetcher, is_url
from nnhal_service.identity.tokens import TokenTable
from nnhal_service.metrics import catalog
from nnhal_service.settings import Settings

if TYPE_CHECKING:
    from nnhal_service.identity.json_web_tokens import JwtVerifier


def create_authentication(
    settings: Settings,
    count: Callable[..., None],
    find_use: FindUse = lambda identity: QuotaUse(),
) -> Authentication:
    """Return the authentication of the clients of a service, see `Accounts`.

    `count` counts an event, by its metric and labels.

    Raises:
        ValueError: a file with tokens or keys cannot be used.
    """
    return Authentication(
        Accounts(settings.policy, needs_identity=settings.needs_identity, find_use=find_use),
        TokenTable(settings.tokens) if settings.tokens is not None else None,
        _jwt_verifier(settings),
        certificates=settings.tls_client_ca is not None,
        users=settings.identify_users,
        failures=FailedAttempts("authenticate", partial(count, catalog.AUTHENTICATION_FAILURES)),
    )


def _jwt_verifier(settings: Settings) -> "JwtVerifier | None":
    if settings.jwt_keys is None or settings.jwt_issuer is None or settings.jwt_audience is None:
        return None
    from nnhal_service.identity.json_web_tokens import (  # noqa: PLC0415 - takes 50 ms
        REFETCH_S,
        REREAD_S,
        JwtSettings,
        JwtVerifier,
        KeySet,
    )

    keys = KeySet(fetcher(settings.jwt_keys), refetch_s=REFETCH_S if is_url(settings.jwt_keys) else REREAD_S)
    return JwtVerifier(JwtSettings(settings.jwt_issuer, settings.jwt_audience), keys)
