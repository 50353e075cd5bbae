"""What an entry of kind feishu must hold."""

import pytest
from pydantic import ValidationError

from channels.feishu.settings import FeishuSettings


def test_an_entry_that_is_off_may_be_unfinished() -> None:
    assert FeishuSettings().mode == "websocket"


@pytest.mark.parametrize(
    ("entry", "missing"),
    [
        ({}, ["app-id", "app-secret"]),
        ({"app-id": "cli_x"}, ["app-secret"]),
        ({"mode": "webhook", "app-id": "cli_x", "encrypt-key": "CANARY"}, ["app-secret", "verification-token"]),
        ({"mode": "webhook", "app-id": "x", "app-secret": "CANARY"}, ["encrypt-key", "verification-token"]),
    ],
)
def test_an_entry_that_is_on_names_all_it_lacks(entry: dict, missing: list[str]) -> None:
    with pytest.raises(ValidationError) as caught:
        FeishuSettings.model_validate({"enabled": True, **entry})
    (error,) = caught.value.errors()
    assert [
        key for key in ("app-id", "app-secret", "encrypt-key", "verification-token") if key in error["msg"]
    ] == missing
    assert "CANARY" not in str(caught.value)


def test_secrets_do_not_show_and_the_alias_is_the_account() -> None:
    entry = FeishuSettings.model_validate({"app-id": "cli_x", "app-secret": "CANARY", "encrypt-key": "CANARY"})
    assert "CANARY" not in repr(entry)
    assert entry.account == "cli_x"
    assert FeishuSettings.model_validate({"app-id": "cli_x", "account-alias": "cli_old"}).account == "cli_old"


@pytest.mark.parametrize("entry", [{"mode": "stream"}, {"api-base-url": "open.feishu.cn"}, {"app_key": "x"}])
def test_what_is_wrong_is_refused(entry: dict) -> None:
    with pytest.raises(ValidationError):
        FeishuSettings.model_validate(entry)
