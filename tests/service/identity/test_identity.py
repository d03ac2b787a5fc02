"""Identity: its text, under which policies, logs and the cache know it."""

from nnhal_service.identity.identity import ANONYMOUS, Identity


def test_the_text_of_an_identity_has_its_kind_and_name() -> None:
    assert str(Identity("token", "alice")) == "token:alice"
    assert str(Identity("spiffe", "spiffe://example.org/a")) == "spiffe:spiffe://example.org/a"
    assert str(ANONYMOUS) == "anonymous"  # entries of caches that older releases wrote have this owner


def test_identities_of_different_kinds_differ() -> None:
    assert Identity("token", "alice") != Identity("jwt", "alice")
    assert str(Identity("token", "anonymous")) != str(ANONYMOUS)
