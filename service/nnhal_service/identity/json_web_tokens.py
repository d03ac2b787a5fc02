"""JSON Web Tokens: signed names of clients, checked with the keys of their issuer.

Only asymmetric algorithms are accepted, and each key only with algorithms of its own type. So neither a token without a
signature (`alg: none`) nor one that is signed with a public key as if it were a secret is valid.
"""

import json
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jwt
from jwt import PyJWK

from nnhal_service.identity.identity import Credential, Identity
from nnhal_service.identity.jwks import Fetch
from nnhal_service.log import event

ALGORITHMS: Mapping[str, Sequence[str]] = {
    "RSA": ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    "EC": ("ES256", "ES384", "ES512"),
    "OKP": ("EdDSA",),
}
"""Accepted algorithms, by type of the key."""
LEEWAY_S = 30
"""Seconds by which clocks may differ."""
REFETCH_S, REREAD_S = 30, 1
"""Least seconds between two fetches of the keys, or between two reads of a file. Unknown keys cause no more."""
MAX_AGE_S = 600
"""Seconds after which the keys are fetched again, so that a key that its issuer has withdrawn does not stay."""
LEAST_RSA_BITS = 2048
MAX_LENGTH, MAX_NAME_LENGTH = 8192, 256
"""Longest tokens and subjects."""
_LATEST_S = 253402300799
"""Last second of the year 9999. Later dates are mistakes, or attempts to be valid without end."""


@dataclass(frozen=True, slots=True)
class JwtSettings:
    """Issuer whose tokens are valid, and the audience that they must name."""

    issuer: str
    audience: str


@dataclass(frozen=True, slots=True)
class _Key:
    """Public key, and the algorithms that it may be used with."""

    key: Any
    algorithms: Sequence[str]


class InvalidTokenError(Exception):
    """A token that is not valid. The message is for its owner, and has nothing of the token."""


class KeySet:
    """Public keys of an issuer by id, fetched when they are old or a token names an unknown one. Thread safe.

    Args:
        refetch_s: least seconds between two fetches.

    Attributes:
        problem: why the last fetch has failed; "" if it has not.
    """

    def __init__(self, fetch: Fetch, clock: Callable[[], float] = time.monotonic, refetch_s: float = REFETCH_S) -> None:
        self._fetch = fetch
        self._refetch_s = refetch_s
        self._clock = clock
        self._lock = threading.Lock()
        self.problem = ""
        self._keys: Mapping[str | None, _Key] = {}
        self._tried_at = self._fetched_at = float("-inf")

    def get(self, key_id: str | None) -> _Key | None:
        """Return a key, or None if it is unknown. A token without an id has the only key."""
        now = self._clock()
        due = now - self._fetched_at >= MAX_AGE_S or self._find(key_id) is None
        if due and now - self._tried_at >= self._refetch_s:
            self.refresh()
        return self._find(key_id)

    def _find(self, key_id: str | None) -> _Key | None:
        keys = self._keys
        if key_id is None and len(keys) == 1:
            return next(iter(keys.values()))
        return keys.get(key_id)

    def refresh(self) -> None:
        """Fetch the keys. If that fails, those of the last fetch remain."""
        with self._lock:
            if self._clock() - self._tried_at < self._refetch_s:  # another thread has done so meanwhile
                return
            self._tried_at = self._clock()
            try:
                self._keys = _usable_keys(self._fetch())
                self._fetched_at, self.problem = self._tried_at, ""
            except ValueError as error:
                self.problem = str(error)
                event("jwks-unusable", logging.WARNING, reason=str(error))


def _usable_keys(text: bytes) -> Mapping[str | None, _Key]:
    """Return the keys that can verify tokens, by id. Symmetric keys and keys for encryption are left out."""
    try:
        entries = json.loads(text)["keys"]
        keys = {entry.get("kid"): key for entry in entries if (key := _usable_key(entry)) is not None}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"the text is not a JSON Web Key Set: {type(error).__name__}") from None
    if not keys:
        raise ValueError("the JSON Web Key Set has no public key that can be used")
    return keys


def _usable_key(entry: Mapping[str, Any]) -> _Key | None:
    """Return the key in an entry of a set, or None if it cannot or must not verify tokens."""
    named = entry.get("alg")
    algorithms = [name for name in ALGORITHMS.get(entry.get("kty", ""), ()) if named in (None, name)]
    if not algorithms or entry.get("use", "sig") != "sig":
        return None
    try:
        key = PyJWK(dict(entry)).key
    except jwt.PyJWTError:
        return None
    size = getattr(key, "key_size", LEAST_RSA_BITS) if entry["kty"] == "RSA" else LEAST_RSA_BITS
    return _Key(key, algorithms) if size >= LEAST_RSA_BITS else None


class JwtVerifier:
    """Verifies tokens of one issuer. Thread safe."""

    def __init__(self, settings: JwtSettings, keys: KeySet) -> None:
        self._settings = settings
        self.keys = keys

    def verify(self, token: str) -> Credential:
        """Return the credential in a token. It has no proof yet.

        Raises:
            InvalidTokenError: the token is not valid.
        """
        if len(token) > MAX_LENGTH:
            raise InvalidTokenError(f"the token has {len(token)} characters; at most {MAX_LENGTH}")
        try:
            header = jwt.get_unverified_header(token)
        except jwt.PyJWTError:
            raise InvalidTokenError("the token is not a JSON Web Token") from None
        algorithm = str(header.get("alg"))
        if not any(algorithm in names for names in ALGORITHMS.values()):
            raise InvalidTokenError("the algorithm of the token is not accepted; only asymmetric ones are")
        key = self.keys.get(header.get("kid"))
        if key is None:
            raise InvalidTokenError("the key of the token is unknown, or the service has no keys of its issuer yet")
        if algorithm not in key.algorithms:
            raise InvalidTokenError("the algorithm of the token is not one of its key")
        claims = self._claims(token, key, algorithm)
        for name in ("exp", "nbf", "iat"):
            date = claims.get(name, 0)
            if type(date) not in (int, float) or not 0 <= date <= _LATEST_S:
                raise InvalidTokenError(f"the claim {name} of the token is not a number of seconds until the year 9999")
        subject = claims["sub"]
        if not subject or len(subject) > MAX_NAME_LENGTH or not subject.isprintable():
            raise InvalidTokenError(f"the subject of the token is not a name of at most {MAX_NAME_LENGTH} characters")
        return Credential(Identity("jwt", subject), expires_at=float(claims["exp"]) + LEEWAY_S)

    def _claims(self, token: str, key: _Key, algorithm: str) -> Mapping[str, Any]:
        try:
            return jwt.decode(
                token,
                key.key,
                algorithms=[algorithm],
                issuer=self._settings.issuer,
                audience=self._settings.audience,
                leeway=LEEWAY_S,
                options={"require": ["exp", "sub", "iss", "aud"]},
            )
        except jwt.ExpiredSignatureError:
            raise InvalidTokenError("the token has expired") from None
        except jwt.InvalidIssuerError:
            raise InvalidTokenError(f"the issuer of the token is not {self._settings.issuer}") from None
        except jwt.InvalidAudienceError:
            raise InvalidTokenError(f"the token is not for the audience {self._settings.audience}") from None
        except jwt.MissingRequiredClaimError as error:
            raise InvalidTokenError(f"the token has no claim {error.claim}") from None
        except (jwt.PyJWTError, ValueError, TypeError, OverflowError):
            raise InvalidTokenError("the token is not valid") from None
