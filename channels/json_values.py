"""Platform JSON: read without trusting its shape (a value of the wanted type, or an empty one), written compactly."""

import json
from collections.abc import Mapping, Sequence

Object = Mapping[str, object]


def load_object(text: str | bytes) -> Object | None:
    """The JSON object in the text; None for anything else, however broken. Lone surrogates stay as they are."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def object_at(holder: Object, key: str) -> Object:
    """The object under the key, {} where there is none."""
    value = holder.get(key)
    return value if isinstance(value, dict) else {}


def list_at(holder: Object, key: str) -> Sequence[object]:
    """The list under the key, () where there is none."""
    value = holder.get(key)
    return value if isinstance(value, list) else ()


def text_at(holder: Object, key: str) -> str:
    """The text under the key, "" where there is none."""
    value = holder.get(key)
    return value if isinstance(value, str) else ""


def int_at(holder: Object, key: str, default: int) -> int:
    """The whole number under the key, `default` where there is none."""
    value = holder.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) else default


def to_json(value: object) -> str:
    """Compact JSON, characters as they are: some platforms show escapes."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
