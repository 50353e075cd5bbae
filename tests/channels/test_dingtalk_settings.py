"""What an entry of kind dingtalk takes, and what it says of what is missing."""

import pytest
from pydantic import ValidationError

from channels.dingtalk.settings import DingTalkSettings

COMPLETE = {"enabled": True, "client-id": "ding1", "client-secret": "secret-canary"}


def test_the_default_needs_no_public_address() -> None:
    made = DingTalkSettings.model_validate(COMPLETE)
    assert made.mode == "stream"
    assert (made.api_base_url, made.oapi_base_url) == ("https://api.dingtalk.com", "https://oapi.dingtalk.com")
    assert made.account == "ding1"
    assert "secret-canary" not in repr(made)


def test_an_alias_carries_on_older_conversations() -> None:
    assert DingTalkSettings.model_validate({**COMPLETE, "account-alias": "ding0"}).account == "ding0"


def test_all_that_is_missing_is_named_at_once_but_only_of_an_entry_that_is_on() -> None:
    with pytest.raises(ValidationError, match="client-id、client-secret"):
        DingTalkSettings.model_validate({"enabled": True, "client-secret": " "})
    assert not DingTalkSettings.model_validate({}).enabled


@pytest.mark.parametrize(
    "over",
    [
        {"mode": "websocket"},
        {"api-base-url": "api.dingtalk.com"},
        {"api-base-url": "https://"},
        {"oapi-base-url": "https://a@b/"},
        {"oapi-base-url": "https://a/?x"},
        {"group-policy": "some"},
        {"robot-code": "x"},
    ],
)
def test_what_makes_no_sense_is_refused(over: dict[str, str]) -> None:
    with pytest.raises(ValidationError):
        DingTalkSettings.model_validate({**COMPLETE, **over})
