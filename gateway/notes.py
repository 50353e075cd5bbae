"""What is allowed and yet probably not meant: one line each, said by `check` and at the start."""

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from gateway.console.auth import is_strong
from gateway.environment import unused
from gateway.problems import shown
from gateway.sections import Settings


def token_note(settings: Settings) -> tuple[str, ...]:
    """A console token so short that it might be guessed. What holds its place is not named."""
    token = settings.console.token.get_secret_value()
    if not settings.console.enabled or not token or is_strong(token):
        return ()
    return (
        "console.token 太短或太单调，容易被猜中，别人猜错太多时自己也要等一分钟；请写至少 16 个随机字符，或留空由网关生成",
    )


def dotenv_notes(
    dotenv: Path, names: Iterable[str], asked: Collection[str], variables: Mapping[str, str]
) -> tuple[str, ...]:
    """Names in the `.env` that the config does not ask for, where one that it asks for has no value and reads alike."""
    found = unused(names, asked, variables)
    return tuple(f"{shown(dotenv)}：{name} 没有用到；是不是 {meant} ？" for name, meant in found.items())
