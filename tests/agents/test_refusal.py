"""What a server's status and body mean."""

from datetime import UTC, datetime

import pytest

from agents.model import ContextTooLong, ModelError, ModelMisconfigured, ModelRefused, OddAnswer
from agents.refusal import ModelBusy, refusal, retry_after, status_inside

NOW = datetime(2026, 11, 30, 10, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("status", "reason", "kind"),
    [
        (400, '{"error": {"code": "context_length_exceeded"}}', ContextTooLong),
        (400, "This model's maximum context length is 4096 tokens.", ContextTooLong),
        (400, "the request exceeds the available context size, type exceed_context_size_error", ContextTooLong),
        (400, "Range of input length should be [1, 30720]", ContextTooLong),
        (400, '{"error":{"code":"1261","message":"Prompt 超长"}}', ContextTooLong),
        (413, "", ContextTooLong),
        (None, "maximum context length", ContextTooLong),
        (400, '{"code": "data_inspection_failed"}', ModelRefused),
        (400, '{"error": {"code": "content_filter"}}', ModelRefused),
        (400, "Content Exists Risk", ModelRefused),
        (401, "context length", ModelMisconfigured),
        (402, "", ModelMisconfigured),
        (403, "", ModelMisconfigured),
        (404, "", ModelMisconfigured),
        (400, "whatever", ModelMisconfigured),
        (429, '{"error": {"code": "insufficient_quota"}}', ModelMisconfigured),
        (429, "slow down", ModelBusy),
        (408, "", ModelBusy),
        (500, "", ModelBusy),
        (529, "", ModelBusy),
        (None, "boom", OddAnswer),
    ],
)
def test_each_refusal_has_its_kind_and_repeats_no_body(status: int | None, reason: str, kind: type[ModelError]) -> None:
    error = refusal("m", status, reason + " sk-test-123")
    assert type(error) is kind
    assert "sk-test-123" not in str(error)
    assert "\n" not in str(error)


@pytest.mark.parametrize(
    ("status", "text"), [(429, "busy"), (408, "unavailable"), (500, "unavailable"), (529, "unavailable")]
)
def test_only_who_was_asked_too_much_is_said_to_be_busy(status: int, text: str) -> None:
    assert refusal("m", status, "").text == text


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "2"}, 2.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
        ({"retry-after": "Mon, 30 Nov 2026 10:00:30 GMT"}, 30.0),
        ({"retry-after": "Mon, 30 Nov 2026 09:00:00 GMT"}, 0.0),
        ({"retry-after": "-5"}, 0.0),
        ({"retry-after": "soon"}, None),
        ({}, None),
    ],
)
def test_retry_after_is_read_in_all_its_forms(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(headers, NOW) == seconds


@pytest.mark.parametrize(
    ("error", "status"),
    [({"code": 429}, 429), ({"code": "429"}, None), ({"code": 7}, None), ("text", None), ({}, None)],
)
def test_a_status_inside_an_answer_is_one_only_if_it_looks_like_one(error: object, status: int | None) -> None:
    assert status_inside(error) == status
