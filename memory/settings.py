"""The form every settings model shares: kebab-case keys, frozen, unknown keys refused; durations such as ``15s``."""

import re
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict

_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def _kebab(name: str) -> str:
    return name.replace("_", "-")


class SettingsModel(BaseModel):
    """Base of all settings: written ``max-messages`` in YAML, read ``max_messages`` in code; never changed in place."""

    model_config = ConfigDict(
        alias_generator=_kebab, populate_by_name=True, frozen=True, extra="forbid", hide_input_in_errors=True
    )


def seconds(value: Any) -> Any:
    """``15s`` → 15.0, ``300ms`` → 0.3, ``30m`` → 1800.0; a number that code gives stands for seconds.

    Raises ValueError for any other text.
    """
    if isinstance(value, str):
        found = _DURATION.fullmatch(value.strip())
        if not found:
            raise ValueError("应为时长，例如 15s、300ms、30m、24h")
        return float(found[1]) * _SECONDS[found[2]]
    return value


Duration = Annotated[float, BeforeValidator(seconds)]
"""A length of time in seconds, written with its unit: ``300ms``, ``15s``, ``30m``, ``24h``, ``7d``."""
