"""How like a text is to the examples of several names: cosine over weighted character n-grams. Pure, no model.

Runs of one to three characters need no word segmentation, so Chinese, Latin and both in one sentence are treated
alike. A run that several names use (帮我) weighs little, one that a single name uses weighs much.
"""

import math
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

LEAST = 0.4
"""Below this cosine nothing is clear."""
MARGIN = 0.10
"""How far the best must be above the second."""
_SIZES = (1, 2, 3)
_SIZE_WEIGHTS = {1: 0.5, 2: 1.0, 3: 1.2}
_CHARACTERS = 300


@dataclass(frozen=True, slots=True)
class Likeness:
    """The name a text is most like, with its cosine (0 to 1), and the second ("" and 0 where there is none)."""

    name: str
    score: float
    second: str = ""
    second_score: float = 0.0


class Similarity:
    """The samples of each name, weighed once; asking costs well under a millisecond for fifty samples."""

    def __init__(self, samples: Mapping[str, Sequence[str]]) -> None:
        """`samples`: the texts by which each name is known. A name without any is never found."""
        counted = {name: [grams for each in texts if (grams := _grams(each))] for name, texts in samples.items()}
        users = Counter(gram for each in counted.values() for gram in {gram for grams in each for gram in grams})
        names = max(len(counted), 1)
        self._rarity = {gram: _rarity(names, used) for gram, used in users.items()}
        self._unknown = _rarity(names, 1)  # as rare as what one name alone uses
        self._owners: list[str] = []
        self._postings: dict[str, list[tuple[int, float]]] = {}
        for name, documents in counted.items():
            for grams in documents:
                self._add(name, grams)

    def _add(self, name: str, grams: Counter[str]) -> None:
        place = len(self._owners)
        self._owners.append(name)
        weights, length = self._weighed(grams)
        for gram, weight in weights.items():
            self._postings.setdefault(gram, []).append((place, weight / length))

    def _weighed(self, grams: Counter[str]) -> tuple[dict[str, float], float]:
        rarity, unknown = self._rarity, self._unknown
        weights = {
            gram: (1 + math.log(count)) * rarity.get(gram, unknown) * _SIZE_WEIGHTS[len(gram)]
            for gram, count in grams.items()
        }
        return weights, math.sqrt(sum(weight * weight for weight in weights.values()))

    def rank(self, text: str) -> list[tuple[str, float]]:
        """The names that `text` has anything in common with, each with its best sample's cosine, best first."""
        grams = _grams(text)
        if not grams:
            return []
        weights, length = self._weighed(grams)
        dots = [0.0] * len(self._owners)
        for gram, weight in weights.items():
            for place, other in self._postings.get(gram, ()):
                dots[place] += weight * other
        best: dict[str, float] = {}
        for owner, dot in zip(self._owners, dots, strict=True):
            if dot > 0:
                best[owner] = max(best.get(owner, 0.0), dot / length)
        return sorted(best.items(), key=lambda item: (-item[1], item[0]))

    def clearest(self, text: str) -> Likeness | None:
        """The one name that `text` is like; None where it is like none, or nearly as much like another."""
        (name, score), (second, second_score) = (*self.rank(text), ("", 0.0), ("", 0.0))[:2]
        if score < LEAST or score - second_score < MARGIN:
            return None
        return Likeness(name, min(score, 1.0), second, second_score)


def _rarity(names: int, users: int) -> float:
    return math.log((1 + names) / (1 + users)) + 0.3


def _grams(text: str) -> Counter[str]:
    """The runs of a text's letters and digits; width, case, blanks and punctuation do not count."""
    plain = unicodedata.normalize("NFKC", text[:_CHARACTERS]).casefold()
    seen = "".join(each for each in plain if each.isalnum())[:_CHARACTERS]
    return Counter(_runs(seen))


def _runs(seen: str) -> Iterable[str]:
    return (seen[start : start + size] for size in _SIZES for start in range(len(seen) - size + 1))
