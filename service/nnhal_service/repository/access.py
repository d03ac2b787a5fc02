"""Access to models by name: which ones an identity may use, load and unload, and push."""

from nnhal_service.identity.accounts import Account, permission_denied
from nnhal_service.identity.authentication import Authentication


def require_model(account: Account, name: str) -> None:
    """Check that an identity may use a model.

    Raises:
        HalError: GENERAL_FAILURE of kind PERMISSION_DENIED.
    """
    if not account.rules.may_use(name):
        raise permission_denied(f"{account.identity} may not use model {name!r}")


def require_management(account: Account, name: str, authentication: Authentication) -> None:
    """Check that an identity may load and unload a model.

    Raises:
        HalError: GENERAL_FAILURE of kind PERMISSION_DENIED.
    """
    require_model(account, name)
    if not authentication.may_manage_models(account):
        raise permission_denied(f"{account.identity} may not load and unload models")


def require_push(account: Account, name: str, authentication: Authentication) -> None:
    """Check that an identity may push, pull and remove a model.

    Raises:
        HalError: GENERAL_FAILURE of kind PERMISSION_DENIED.
    """
    if account.rules.push_models is None:
        require_management(account, name, authentication)
    if not account.rules.may_push(name):
        raise permission_denied(f"{account.identity} may not push model {name!r}")
