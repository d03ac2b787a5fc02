"""Accounts: what each identity may use, and what it uses now."""

import threading
import weakref
from collections import Counter, deque
from collections.abc import Callable, Hashable, Mapping
from typing import TypeAlias

from nnhal.errors import HalError, limit_exceeded
from nnhal.types import ErrorKind, ErrorStatus
from nnhal_driver.scheduling.quota_use import HeldPlace, Quota, QuotaUse
from nnhal_driver.scheduling.share import Share, ShareOwner
from nnhal_service.identity.identity import ANONYMOUS, Identity
from nnhal_service.identity.policy import IdentityRules, Policy

QUOTAS = ("sessions", "memory_bytes", "cache_bytes", "prepared_models", "executions")
"""Quotas that are whole numbers."""
_COUNTED = {"sessions": Quota.SESSIONS, "prepared_models": Quota.PREPARED_MODELS}
"""Quotas of objects that accounts count."""
_RECENT = 1024
"""Number of accounts to keep without a session."""

FindUse: TypeAlias = Callable[[str], QuotaUse]


class Account:
    """Rights, quotas and use of one identity. Thread safe.

    Attributes:
        use: what it uses in other workers.
    """

    def __init__(
        self, identity: Identity, rules: IdentityRules, use: QuotaUse | None = None, *, may_connect: bool
    ) -> None:
        self.identity = identity
        self.rules = rules
        self.may_connect = may_connect
        self.use = use or QuotaUse()
        name, weight = f"identity {identity}", rules.weight or 1.0
        self.share = Share(name, weight, rules.executions, rules.device_seconds, use=self.use)
        self._used: Counter[str] = Counter()
        self._lock = threading.Lock()

    def owner(self, session: str) -> Hashable:
        """Return the owner of the work of one session.

        All sessions of an identity have one share of the device. Anonymous clients are not one client, so each of their
        sessions has a share, unless the policy has rules for their work.
        """
        rules = self.rules
        has_rules = any(rule is not None for rule in (rules.weight, rules.executions, rules.device_seconds))
        return session if self.identity == ANONYMOUS and not has_rules else ShareOwner(session, self.share)

    def acquire(self, quota: str, place: HeldPlace | None = None) -> None:
        """Count an object against a quota until `release`. It comes from a place first: see `QuotaUse.claim`.

        Raises:
            HalError: RESOURCE_EXHAUSTED_TRANSIENT, limit identity_QUOTA.
        """
        allowed: int | None = getattr(self.rules, quota)
        with self._lock:
            own = self._used[quota]
            used = None if allowed is None else self.use.claim(_COUNTED[quota], own, 1, allowed, place)
            if used is None:
                self._used[quota] += 1
                return
        assert allowed is not None
        raise self.exceeded(quota, f"has {used} {quota.replace('_', ' ')}", allowed)

    def release(self, quota: str) -> None:
        """Undo one `acquire`."""
        with self._lock:
            self._used[quota] -= 1
            self.use.publish(_COUNTED[quota], self._used[quota])

    def used(self, quota: str) -> int:
        """Return the number of objects in this worker that count against a quota."""
        return self._used[quota]

    def limits(self) -> Mapping[str, int]:
        """Return the quotas that are whole numbers, by the name of the limit in errors."""
        values = ((name, getattr(self.rules, name)) for name in QUOTAS)
        return {f"identity_{name}": value for name, value in values if value is not None}

    def exceeded(self, quota: str, use: str, allowed: float) -> HalError:
        """Return the error of work that would exceed a quota. `use` is for example "has 3 sessions"."""
        return limit_exceeded(f"identity_{quota}", f"identity {self.identity} {use}; its quota is {allowed:g}")


class Accounts:
    """Accounts of all identities, by a policy. Thread safe.

    Args:
        needs_identity: whether anonymous clients may connect only if the policy says so.
    """

    def __init__(
        self,
        policy: Policy | None = None,
        *,
        needs_identity: bool = False,
        find_use: FindUse = lambda identity: QuotaUse(),
    ) -> None:
        self._policy = policy or Policy()
        self._needs_identity = needs_identity
        self._find_use = find_use
        # the last ones stay without a session, too: a new session must not reset the running time
        self._accounts: weakref.WeakValueDictionary[Identity, Account] = weakref.WeakValueDictionary()
        self._recent: deque[Account] = deque(maxlen=_RECENT)
        self._lock = threading.Lock()

    def of(self, identity: Identity) -> Account:
        """Return the account of an identity. All its sessions have the same one."""
        with self._lock:
            account = self._accounts.get(identity)
            if account is None:
                account = self._accounts[identity] = self._create(identity)
                self._recent.append(account)
            return account

    def _create(self, identity: Identity) -> Account:
        rules = self._policy.rules(identity)
        may_connect = rules.connect
        if identity == ANONYMOUS and self._needs_identity:  # the default is for clients that authenticate
            own = self._policy.identities.get(str(ANONYMOUS), IdentityRules())
            may_connect = bool(own.connect)
        use = self._find_use(str(identity)) if rules.has_quotas else None
        return Account(identity, rules, use, may_connect=may_connect is not False)


def unauthenticated(reason: str) -> HalError:
    """Return the error of a call that does not prove an identity."""
    return HalError(ErrorStatus.GENERAL_FAILURE, reason, kind=ErrorKind.UNAUTHENTICATED)


def permission_denied(reason: str) -> HalError:
    """Return the error of a call that the policy forbids to its identity."""
    return HalError(ErrorStatus.GENERAL_FAILURE, reason, kind=ErrorKind.PERMISSION_DENIED)
