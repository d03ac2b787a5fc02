"""Issuer of JSON Web Tokens for tests, and its keys."""

import json
import time
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

ISSUER, AUDIENCE = "https://issuer.example", "nnhal"


class Issuer:
    """Issuer with one RSA key and one of an elliptic curve.

    Attributes:
        requests: number of times that its keys were fetched.
    """

    def __init__(self) -> None:
        self.rsa = rsa.generate_private_key(65537, 2048)
        self.ec = ec.generate_private_key(ec.SECP256R1())
        self.requests = 0
        self.ids = {"rsa": "rsa", "ec": "ec"}

    def key_set(self) -> bytes:
        """Return the public keys."""
        self.requests += 1
        keys = [
            {**RSAAlgorithm.to_jwk(self.rsa.public_key(), as_dict=True), "kid": self.ids["rsa"], "use": "sig"},
            {**ECAlgorithm.to_jwk(self.ec.public_key(), as_dict=True), "kid": self.ids["ec"], "alg": "ES256"},
            {"kty": "oct", "k": "c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0", "kid": "shared"},
        ]
        return json.dumps({"keys": keys}).encode()

    @property
    def public_pem(self) -> bytes:
        """The public RSA key, as an attacker can get it."""
        return self.rsa.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)

    def claims(self, subject: str = "alice", lifetime_s: float = 600, **others: Any) -> dict[str, Any]:
        """Return valid claims, with those that differ."""
        claims = {"sub": subject, "iss": ISSUER, "aud": AUDIENCE, "exp": time.time() + lifetime_s, **others}
        return {name: value for name, value in claims.items() if value is not None}

    def token(self, subject: str = "alice", lifetime_s: float = 600, **others: Any) -> str:
        """Return a signed token."""
        claims = self.claims(subject, lifetime_s, **others)
        return jwt.encode(claims, self.rsa, "RS256", headers={"kid": self.ids["rsa"]})
