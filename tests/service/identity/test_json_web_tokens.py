"""JSON Web Tokens: those that are valid, and all ways to forge one that are known."""

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Callable

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from nnhal_service.identity.identity import Identity
from nnhal_service.identity.json_web_tokens import (
    LEEWAY_S,
    MAX_AGE_S,
    REFETCH_S,
    InvalidTokenError,
    JwtSettings,
    JwtVerifier,
    KeySet,
)
from tests.service.identity.issuer import AUDIENCE, ISSUER, Issuer


@pytest.fixture(scope="module")
def issuer() -> Issuer:
    return Issuer()


@pytest.fixture
def verifier(issuer: Issuer) -> JwtVerifier:
    return JwtVerifier(JwtSettings(ISSUER, AUDIENCE), KeySet(issuer.key_set))


def encode(part: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode()


def hmac_token(issuer: Issuer, secret: bytes, key_id: str) -> str:
    """Return a token with a signature of HMAC. PyJWT itself refuses to make one with a public key."""
    signed = f"{encode({'alg': 'HS256', 'typ': 'JWT', 'kid': key_id})}.{encode(issuer.claims())}"
    signature = hmac.new(secret, signed.encode(), hashlib.sha256).digest()
    return f"{signed}.{base64.urlsafe_b64encode(signature).rstrip(b'=').decode()}"


def test_tokens_of_both_kinds_of_keys_are_valid(issuer: Issuer, verifier: JwtVerifier) -> None:
    for key, algorithm, key_id in (
        (issuer.rsa, "RS256", "rsa"),
        (issuer.rsa, "PS512", "rsa"),
        (issuer.ec, "ES256", "ec"),
    ):
        claims = issuer.claims("team/alice")
        credential = verifier.verify(jwt.encode(claims, key, algorithm, headers={"kid": key_id}))
        assert credential.identity == Identity("jwt", "team/alice")
        assert credential.expires_at == int(claims["exp"]) + LEEWAY_S or credential.expires_at == pytest.approx(
            claims["exp"] + LEEWAY_S
        )


FORGERIES: dict[str, Callable[[Issuer], str]] = {
    "none": lambda issuer: f"{encode({'alg': 'none', 'kid': 'rsa'})}.{encode(issuer.claims())}.",
    "None": lambda issuer: f"{encode({'alg': 'None', 'kid': 'rsa'})}.{encode(issuer.claims())}.",
    "no algorithm": lambda issuer: f"{encode({'kid': 'rsa'})}.{encode(issuer.claims())}.",
    "a list as the algorithm": lambda issuer: f"{encode({'alg': ['RS256'], 'kid': 'rsa'})}.{encode(issuer.claims())}.",
    "none with the signature of another": lambda issuer: ".".join(
        [encode({"alg": "none", "kid": "rsa"}), *issuer.token().split(".")[1:]]
    ),
    "the public key as a secret": lambda issuer: hmac_token(issuer, issuer.public_pem, "rsa"),
    "a secret in the key set": lambda issuer: hmac_token(issuer, b"secretsecretsecretsecretsecret", "shared"),
    "another algorithm of the key": lambda issuer: ".".join(
        [encode({"alg": "ES256", "kid": "rsa"}), *issuer.token().split(".")[1:]]
    ),
    "the key of another": lambda issuer: jwt.encode(
        issuer.claims(), rsa.generate_private_key(65537, 2048), "RS256", headers={"kid": "rsa"}
    ),
    "an unknown key": lambda issuer: jwt.encode(issuer.claims(), issuer.rsa, "RS256", headers={"kid": "other"}),
    "no key id": lambda issuer: jwt.encode(issuer.claims(), issuer.rsa, "RS256"),
    "a key in the token": lambda issuer: jwt.encode(
        issuer.claims(),
        (own := rsa.generate_private_key(65537, 2048)),
        "RS256",
        headers={"kid": "rsa", "jwk": json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(own.public_key()))},
    ),
    "changed claims": lambda issuer: ".".join(
        [(parts := issuer.token().split("."))[0], encode(issuer.claims("root")), parts[2]]
    ),
    "unknown critical header": lambda issuer: jwt.encode(
        issuer.claims(), issuer.rsa, "RS256", headers={"kid": "rsa", "crit": ["x"], "x": 1}
    ),
    "expired": lambda issuer: issuer.token(lifetime_s=-LEEWAY_S - 5),
    "not yet valid": lambda issuer: issuer.token(nbf=time.time() + LEEWAY_S + 60),
    "another issuer": lambda issuer: issuer.token(iss="https://other.example"),
    "a longer issuer": lambda issuer: issuer.token(iss=ISSUER + ".evil.example"),
    "another audience": lambda issuer: issuer.token(aud="others"),
    "no audience": lambda issuer: issuer.token(aud=None),
    "no issuer": lambda issuer: issuer.token(iss=None),
    "no expiry": lambda issuer: issuer.token(exp=None),
    "an expiry that is text": lambda issuer: issuer.token(exp="never"),
    "no subject": lambda issuer: issuer.token(sub=None),
    "an empty subject": lambda issuer: issuer.token(sub=""),
    "a subject with a new line": lambda issuer: issuer.token(sub="alice\nbob"),
    "a long subject": lambda issuer: issuer.token(sub="a" * 257),
    "a long token": lambda issuer: issuer.token(more="a" * 8192),
    "two parts": lambda issuer: "a.b",
    "not base64": lambda issuer: "ä.b.c",
    "nothing": lambda issuer: "..",
}


@pytest.mark.parametrize("forgery", FORGERIES)
def test_forged_tokens_are_invalid(issuer: Issuer, verifier: JwtVerifier, forgery: str) -> None:
    token = FORGERIES[forgery](issuer)
    with pytest.raises(InvalidTokenError) as caught:
        verifier.verify(token)
    assert token not in str(caught.value) or not token.strip(".")


ABSURD = {
    "many digits": "9" * 4000,
    "more digits than Python converts": "9" * 5000,
    "a negative number of many digits": "-" + "9" * 4000,
    "end of the floats": "1e308",
    "past the floats": "1e999",
    "not a number": "NaN",
    "true": "true",
    "null": "null",
    "digits as text": f'"{int(time.time()) + 600}"',
    "the year 10000": "253402300800",
}


@pytest.mark.parametrize("claim", ["exp", "nbf", "iat"])
@pytest.mark.parametrize("value", ABSURD)
def test_dates_must_be_sensible_numbers(issuer: Issuer, verifier: JwtVerifier, claim: str, value: str) -> None:
    claims = json.dumps(issuer.claims() | {claim: "DATE"}).replace('"DATE"', ABSURD[value])
    token = jwt.api_jws.encode(claims.encode(), issuer.rsa, "RS256", headers={"kid": "rsa"})
    with pytest.raises(InvalidTokenError) as caught:
        verifier.verify(token)
    assert len(str(caught.value)) < 100


def test_dates_of_any_sensible_form_are_valid(issuer: Issuer, verifier: JwtVerifier) -> None:
    now = time.time()
    for dates in ({"exp": 253402300799}, {"exp": now + 600.5, "nbf": int(now), "iat": now}, {"nbf": 0}):
        verifier.verify(issuer.token(**dates))


def test_unknown_keys_cause_few_fetches() -> None:
    now, issuer = [0.0], Issuer()
    keys = KeySet(issuer.key_set, lambda: now[0])
    assert all(keys.get(f"unknown {number}") is None for number in range(100))
    assert issuer.requests == 1
    issuer.ids["rsa"] = "next"  # the issuer rotates its key
    now[0] += REFETCH_S
    assert keys.get("next") is not None
    assert keys.get("rsa") is None
    assert issuer.requests == 2
    now[0] += MAX_AGE_S
    assert keys.get("next") is not None
    assert issuer.requests == 3


@pytest.mark.parametrize("text", [b"", b"[]", b"{}", b'{"keys": 1}', b'{"keys": [1]}', b'{"keys": []}', b"[" * 100000])
def test_keys_stay_if_a_fetch_fails(text: bytes) -> None:
    now, issuer = [0.0], Issuer()
    answers = [issuer.key_set(), text]
    keys = KeySet(lambda: answers.pop(0), lambda: now[0])
    assert keys.get("rsa") is not None
    now[0] += MAX_AGE_S
    assert keys.get("rsa") is not None
    assert not answers


def test_short_keys_are_not_used() -> None:
    issuer = Issuer()
    issuer.rsa = rsa.generate_private_key(65537, 1024)
    keys = KeySet(issuer.key_set)
    assert keys.get("rsa") is None
    assert keys.get("ec") is not None
