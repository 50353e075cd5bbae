"""What an entry of kind wechat must hold."""

import pytest
from pydantic import ValidationError

from channels.wechat.settings import WeChatSettings

KEY = "CANARY7890123456789012345678901234567890abc"
FULL = {"enabled": True, "app-id": "wx1", "app-secret": "CANARY", "token": "CANARY", "encoding-aes-key": KEY}
KEYS = ("app-id", "token", "app-secret", "encoding-aes-key")


def test_an_entry_that_is_off_may_be_unfinished() -> None:
    assert WeChatSettings().mode == "safe"


@pytest.mark.parametrize(
    ("change", "missing"),
    [
        (dict.fromkeys(KEYS, ""), list(KEYS)),
        ({"token": " "}, ["token"]),
        ({"encoding-aes-key": "", "mode": "plain"}, []),
        ({"app-secret": "", "active-send": "off"}, []),
        ({"app-secret": "", "active-send": "auto"}, ["app-secret"]),
    ],
)
def test_an_entry_that_is_on_names_all_it_lacks(change: dict[str, object], missing: list[str]) -> None:
    if not missing:
        assert WeChatSettings.model_validate(FULL | change).enabled
        return
    with pytest.raises(ValidationError) as caught:
        WeChatSettings.model_validate(FULL | change)
    (error,) = caught.value.errors()
    assert [key for key in KEYS if key in error["msg"]] == missing


@pytest.mark.parametrize("key", [KEY[:-1], KEY + "x", " " + KEY[:-1], KEY[:-1] + "="])
def test_a_key_of_another_length_is_named_with_its_rule(key: str) -> None:
    with pytest.raises(ValidationError) as caught:
        WeChatSettings.model_validate(FULL | {"encoding-aes-key": key})
    assert "encoding-aes-key" in str(caught.value)
    assert "43" in str(caught.value)
    assert "CANARY" not in str(caught.value)


def test_secrets_do_not_show_and_the_alias_is_the_account() -> None:
    entry = WeChatSettings.model_validate(FULL)
    assert "CANARY" not in repr(entry)
    assert entry.account == "wx1"
    assert WeChatSettings.model_validate(FULL | {"account-alias": "wx0"}).account == "wx0"


@pytest.mark.parametrize("entry", [{"mode": "compat"}, {"active-send": "maybe"}, {"api-base-url": "api"}, {"key": "x"}])
def test_what_is_wrong_is_refused(entry: dict[str, str]) -> None:
    with pytest.raises(ValidationError):
        WeChatSettings.model_validate(FULL | entry)
