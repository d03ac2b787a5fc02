"""Authentication: who makes a call, from its bearer token, its certificate, or the user at the other end.

A session belongs to the identity that has opened it. Each later call must come from the same identity. The session
keeps what its client presented last, so that a call that presents the same again is only compared.
"""

import hmac
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, cast

import grpc

from nnhal.errors import HalError
from nnhal.types import ErrorKind
from nnhal_service.failed_attempts import FailedAttempts
from nnhal_service.identity.accounts import Account, Accounts, permission_denied, unauthenticated
from nnhal_service.identity.identity import Credential, Identity
from nnhal_service.identity.local_peers import tcp_user, unix_users
from nnhal_service.identity.tokens import TokenTable, token_digest

if TYPE_CHECKING:
    from nnhal_service.identity.json_web_tokens import JwtVerifier

AuthContext = Mapping[str, Sequence[bytes]]
"""Properties of the other end of a connection."""

_CERTIFICATE = "x509_pem_cert"
"""Property with the certificate of the client, in PEM."""
_SPIFFE_ID, _SUBJECT = "peer_spiffe_id", "x509_subject"

_HEADER = "authorization"
_SCHEME = "bearer "


class Authentication:
    """Finds the identities of callers. Thread safe.

    Args:
        certificates: whether clients may have certificates.
        users: whether to identify users of this machine.
        failures: records what is not valid.

    Attributes:
        is_enabled: whether clients can authenticate.
        ports, paths: TCP ports and bound paths of the service, by which it finds the users of connections.
    """

    def __init__(
        self,
        accounts: Accounts,
        tokens: TokenTable | None = None,
        jwt: "JwtVerifier | None" = None,
        *,
        certificates: bool = False,
        users: bool = False,
        failures: FailedAttempts | None = None,
    ) -> None:
        self.accounts = accounts
        self._tokens = tokens
        self._jwt = jwt
        self._certificates = certificates
        self._users = users
        self._failures = failures or FailedAttempts("authenticate")
        self.ports: Collection[int] = ()
        self.paths: Collection[str] = ()
        self.is_enabled = tokens is not None or jwt is not None or certificates or users
        self._takes_tokens = tokens is not None or jwt is not None

    def admit(self, context: grpc.ServicerContext) -> tuple[Credential, Account]:
        """Return the credential and the account of the caller of a new session or of a call without one.

        Raises:
            HalError: GENERAL_FAILURE of kind UNAUTHENTICATED or PERMISSION_DENIED.
        """
        credential = self.identify(context)
        return credential, self.account(credential, context.peer())

    def account(self, credential: Credential, peer: str) -> Account:
        """Return the account of a caller that has been identified; `peer` is its connection, as gRPC names it.

        Raises:
            HalError: GENERAL_FAILURE of kind UNAUTHENTICATED or PERMISSION_DENIED.
        """
        account = self.accounts.of(credential.identity)
        if not account.may_connect:
            is_known = bool(credential.proof)
            denied = permission_denied(f"{credential.identity} may not use this service")
            error = denied if is_known else unauthenticated("the service needs " + self._wanted())
            self._note(peer, error)
            raise error
        return account

    def _note(self, peer: str, error: HalError) -> None:
        self._failures.note(peer, error.reason, ErrorKind(error.kind).name.lower())

    def problems(self) -> dict[str, str]:
        """Return why files of credentials cannot be used as they are, by kind; "" for those that can."""
        problems = {}
        if self._tokens is not None:
            self._tokens.refresh()
            problems["tokens"] = self._tokens.problem
        if self._jwt is not None:
            problems["keys"] = self._jwt.keys.problem
        return problems

    def may_count_others(self, context: grpc.ServicerContext) -> bool:
        """Return whether a caller may learn numbers that concern all identities."""
        return not self.is_enabled or self.admit(context)[1].rules.administer is True

    def may_manage_models(self, account: Account) -> bool:
        """Return whether an account may load and unload models by name."""
        rules = account.rules
        if rules.manage_models is not None:
            return rules.manage_models
        return not self.is_enabled or rules.administer is True

    def _wanted(self) -> str:
        ways = {
            "a bearer token": self._takes_tokens,
            "a certificate of the client": self._certificates,
            "a user of its machine": self._users,
        }
        return " or ".join(way for way, is_offered in ways.items() if is_offered) or "an identity"

    def identify(self, context: grpc.ServicerContext) -> Credential:
        """Return the credential of a caller. Clients that present nothing are anonymous.

        Raises:
            HalError: GENERAL_FAILURE of kind UNAUTHENTICATED: it presents something that is not valid.
        """
        try:
            return self._identify(context) if self.is_enabled else Credential()
        except HalError as error:
            self._note(context.peer(), error)
            raise

    def _identify(self, context: grpc.ServicerContext) -> Credential:
        proof = self._proof(context)
        if self._takes_tokens and (header := _authorization(context)):
            return self._bearer(header)
        if self._certificates and proof.startswith("-----"):
            identity = certificate_identity(cast(AuthContext, context.auth_context()))
            if identity is None:
                raise unauthenticated("the certificate has no subject, and not exactly one SPIFFE id")
            return Credential(identity, proof)
        if self._users and (user := self.user(context.peer())) is not None:
            return Credential(Identity("user", str(user)), proof)
        return Credential(proof="")

    def user(self, peer: str) -> int | None:
        """Return the user at the other end of a connection, or None if it is on another machine."""
        if not peer.startswith("unix"):
            return tcp_user(peer, self.ports)
        users = unix_users(self.paths)
        if len(users) > 1:
            names = " and ".join(map(str, sorted(users)))
            raise unauthenticated(
                f"users {names} are connected to the Unix sockets of the service, and gRPC does not tell which of "
                "them calls; use a token, or TCP on loopback"
            )
        return next(iter(users), None)

    def renew(self, credential: Credential, context: grpc.ServicerContext) -> Credential | None:
        """Return the credential of a later call of a session, given the one before; None if it is of another identity.

        Raises:
            HalError: GENERAL_FAILURE of kind UNAUTHENTICATED: it presents something that is not valid.
        """
        proof = self._proof(context)
        # headers and certificates are ASCII; the time of the comparison must not depend on where they differ
        if proof.isascii() and hmac.compare_digest(proof, credential.proof) and self.is_valid(credential):
            return credential
        other = self.identify(context)
        return other if other.identity == credential.identity else None

    def is_valid(self, credential: Credential) -> bool:
        """Return whether a credential has neither expired nor been revoked."""
        if credential.digest and (self._tokens is None or self._tokens.name(credential.digest) is None):
            return False
        return not credential.is_expired

    def _proof(self, context: grpc.ServicerContext) -> str:
        """Return the text that a caller presents: the header, the certificate, or the name of its connection."""
        if self._takes_tokens and (header := _authorization(context)):
            return header
        if self._certificates and (certificates := context.auth_context().get(_CERTIFICATE)):
            return bytes(certificates[0]).decode("ascii", "replace")
        return context.peer() if self._users else ""

    def _bearer(self, header: str) -> Credential:
        if header[: len(_SCHEME)].lower() != _SCHEME:
            raise unauthenticated("the header authorization is not of the form 'Bearer TOKEN'")
        token = header[len(_SCHEME) :].strip()
        if self._tokens is not None:
            digest = token_digest(token)
            if (name := self._tokens.name(digest)) is not None:
                return Credential(Identity("token", name), header, digest=digest)
        if self._jwt is None or token.count(".") != 2:
            raise unauthenticated("the token is unknown or has been revoked")
        return self._jwt_credential(self._jwt, token, header)

    def _jwt_credential(self, verifier: "JwtVerifier", token: str, header: str) -> Credential:
        from nnhal_service.identity.json_web_tokens import InvalidTokenError  # noqa: PLC0415 - takes 50 ms

        try:
            credential = verifier.verify(token)
        except InvalidTokenError as error:
            raise unauthenticated(str(error)) from None
        return Credential(credential.identity, header, credential.expires_at)


def _authorization(context: grpc.ServicerContext) -> str:
    """Return the header of that name, or "". It is wrong to have two."""
    found = ""
    for key, value in context.invocation_metadata() or ():
        if key == _HEADER:
            if found:
                raise unauthenticated("the call has two headers authorization")
            found = str(value)
    return found


def certificate_identity(properties: AuthContext) -> Identity | None:
    """Return the identity in a certificate: its SPIFFE id, or else its subject. None if it has neither, or two ids.

    The handshake has verified the certificate.
    """
    ids = properties.get(_SPIFFE_ID, ())
    if len(ids) == 1:
        return Identity("spiffe", _text(ids[0]))
    subjects = properties.get(_SUBJECT, ())
    if ids or len(subjects) != 1 or not subjects[0]:
        return None
    return Identity("certificate", _text(subjects[0]))


def _text(value: bytes) -> str:
    return value.decode("utf-8", "backslashreplace")
