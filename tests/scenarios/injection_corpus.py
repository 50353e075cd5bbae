"""The attempts of injection_corpus.yaml, each with a code of its own: what a model that obeys would repeat."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from tests.platforms.obedient_model import CODE

_LEAST = 60


@dataclass(frozen=True)
class Attempt:
    """One attempt: how it goes about it, its text, and the code in it."""

    kind: str
    text: str
    code: str


def _attempts() -> Iterator[Attempt]:
    kinds = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
    number = 0
    for kind, texts in kinds.items():
        for text in texts:
            code = f"K{number:03d}"
            assert "{code}" in text, text
            assert CODE.fullmatch(code)
            yield Attempt(kind, text.replace("{code}", code), code)
            number += 1


ATTEMPTS: Sequence[Attempt] = tuple(_attempts())
assert len({attempt.text for attempt in ATTEMPTS}) >= _LEAST


def batches(size: int, attempts: Sequence[Attempt] = ATTEMPTS) -> list[Sequence[Attempt]]:
    """The attempts, `size` at a time."""
    return [attempts[at : at + size] for at in range(0, len(attempts), size)]
