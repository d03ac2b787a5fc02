"""Policy: which rules apply to an identity."""

import pytest
from pydantic import ValidationError

from nnhal_service.identity.identity import ANONYMOUS, Identity
from nnhal_service.identity.policy import IdentityRules, Policy

ALICE, BOB = Identity("token", "alice"), Identity("token", "bob")


def test_the_most_specific_rule_counts_for_each_right_and_quota() -> None:
    policy = Policy(
        default=IdentityRules(sessions=1, weight=2.0, executions=9),
        identities={
            "token:*": IdentityRules(sessions=2, administer=True),
            "token:a*": IdentityRules(sessions=3),
            "token:alice": IdentityRules(executions=4),
        },
    )
    assert policy.rules(ALICE) == IdentityRules(sessions=3, weight=2.0, executions=4, administer=True)
    assert policy.rules(BOB) == IdentityRules(sessions=2, weight=2.0, executions=9, administer=True)
    assert policy.rules(ANONYMOUS) == IdentityRules(sessions=1, weight=2.0, executions=9)


def test_a_name_with_wildcards_in_it_is_not_a_pattern_for_itself_only() -> None:
    """A client that could choose the name `*` must not get the rules of another."""
    policy = Policy(identities={"jwt:admin": IdentityRules(administer=True)})
    assert policy.rules(Identity("jwt", "*")).administer is None
    assert policy.rules(Identity("jwt", "ADMIN")).administer is None


@pytest.mark.parametrize("name", ["alice", "tokens:alice", "token:", "token", "anonymous:", ""])
def test_names_that_no_identity_has_are_errors(name: str) -> None:
    with pytest.raises(ValidationError, match="is not an identity; expected KIND:NAME"):
        Policy.model_validate({"identities": {name: {"connect": False}}})


@pytest.mark.parametrize(
    "rules", [{"sesions": 1}, {"sessions": 0}, {"device_seconds": 0}, {"weight": -1}, {"device_seconds": float("nan")}]
)
def test_invalid_rules_are_errors(rules: dict[str, float]) -> None:
    with pytest.raises(ValidationError):
        Policy.model_validate({"default": rules})
