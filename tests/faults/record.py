"""What people said, what was taken and shown; and what must be true of it, whatever befell the gateway meanwhile."""

import collections
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gateway.config.texts import DEFAULTS
from tests.scenarios.conversation_files import checked

FETCH = "继续"
"""Said to fetch what waits; it may be said often, and may become a question."""

FAILURES = frozenset(DEFAULTS[name] for name in ("failed", "busy", "unavailable", "broke-off", "timeout"))

_WORD = re.compile(r"人(\d+)号第(\d+)问。")


def text_of(person: int, count: int) -> str:
    """A text nobody else says, nor this person again."""
    return f"人{person:02d}号第{count:05d}问。"


def speakers(text: str) -> set[int]:
    """Whose words stand in it."""
    return {int(person) for person, _ in _WORD.findall(text)}


@dataclass(slots=True)
class Message:
    """Something that was said. `number` is the platform's id, "" where the gateway makes it."""

    person: int
    text: str
    number: str = ""
    acknowledged: bool = False


@dataclass(frozen=True, slots=True)
class Shown:
    """Something a person was shown; `about` is the number of the message it answers, where the platform tells."""

    person: int
    text: str
    about: str = ""

    def __post_init__(self) -> None:
        """Each platform has its own way of writing a line break."""
        object.__setattr__(self, "text", re.sub(r"\s*\n\s*", "\n", self.text))


@dataclass(frozen=True, slots=True)
class Turn:
    """One question in a file, with its answer where there is one."""

    person: int
    texts: tuple[str, ...]
    ids: tuple[str, ...]
    answer: str | None

    @property
    def question(self) -> str:
        return "\n".join(self.texts)


@dataclass(slots=True)
class Record:
    """One run. `once` are the people on platforms that know a repeat, `silent` those whom nothing can be sent later."""

    messages: list[Message] = field(default_factory=list)
    shown: list[Shown] = field(default_factory=list)
    once: set[int] = field(default_factory=set)
    silent: set[int] = field(default_factory=set)
    excused: set[str] = field(default_factory=set)
    """Questions that the model once did not answer well: these alone may have failed."""
    story: dict[str, list[str]] = field(default_factory=lambda: collections.defaultdict(list))
    """What became of each try to say a text, for whoever has to find out what went wrong."""

    def check(self, files: Iterable[Path]) -> list[Turn]:
        """Everything that is promised. Blocking. Raises AssertionError; returns the turns in files."""
        turns = [turn for path in files for turn in self._turns(path)]
        self._each_acknowledged_once(turns)
        self._nobody_sees_others()
        self._answers(turns)
        return turns

    def _turns(self, path: Path) -> list[Turn]:
        """A file's turns: well-formed, each answer right behind its question, one person's, in the order of saying."""
        items = checked(path)
        turns: list[Turn] = []
        for at, item in enumerate(items):
            if item.role == "assistant":
                assert items[at - 1].role == "user", (path, item)
                assert item.meta["to"] == items[at - 1].meta["id"], (path, item)
                continue
            assert item.role == "user", (path, item)
            ids = tuple(item.meta.get("ids", [item.meta["id"]]))
            texts = tuple(item.text.split("\n"))
            assert len(texts) == len(ids), (path, item)
            after = items[at + 1] if at + 1 < len(items) else None
            answer = after.text if after is not None and after.role == "assistant" else None
            assert answer in (None, f"答复：{item.text}"), (path, item, answer)
            turns.append(Turn(min(speakers(item.text), default=-1), texts, ids, answer))
        people = {turn.person for turn in turns} - {-1}
        assert len(people) == 1, f"{path} holds words of {people}"
        said = [text for turn in turns for text in turn.texts if text != FETCH]
        assert said == sorted(said), f"not in the order in which it was said: {path}"
        (person,) = people
        return [Turn(person, turn.texts, turn.ids, turn.answer) for turn in turns]

    def _each_acknowledged_once(self, turns: list[Turn]) -> None:
        found = collections.Counter(text for turn in turns for text in turn.texts if text != FETCH)
        acknowledged = [message.text for message in self.messages if message.acknowledged and message.text != FETCH]
        lost, twice = set(acknowledged) - set(found), [text for text, times in found.items() if times > 1]
        assert not lost, f"acknowledged and lost: {lost}"
        assert not twice, f"taken twice: {twice}"
        assert set(found) <= {message.text for message in self.messages}, "nobody said that"
        by_number = {message.number: message.text for message in self.messages if message.number}
        for turn in turns:
            for id, text in zip(turn.ids, turn.texts, strict=True):
                assert by_number.get(id, text) == text, f"{id} is another message's"

    def _nobody_sees_others(self) -> None:
        for shown in self.shown:
            assert speakers(shown.text) <= {shown.person}, f"{shown} holds another's words"

    def _answers(self, turns: list[Turn]) -> None:
        """Each question was answered (or its failure told): once where the platform knows repeats, else at least once."""
        seen: Mapping[int, list[Shown]] = collections.defaultdict(list)
        for shown in self.shown:
            seen[shown.person].append(shown)
        for turn in turns:
            assert self._is_answered(turn, seen[turn.person]), (
                f"not answered as it should be: {turn} {self._trace(turn)}"
            )
        for person in {turn.person for turn in turns}:
            own = [turn for turn in turns if turn.person == person]
            failed = [turn for turn in own if turn.answer is None]
            baseless = [turn for turn in failed if turn.question not in self.excused]
            assert not baseless, f"failed without a cause: {baseless}"
            told = sum(shown.text.count(text) for shown in seen[person] for text in FAILURES)
            assert person in self.silent or told >= len(failed), f"a failure that {person} was not told"
            first = [
                next(at for at, each in enumerate(seen[person]) if turn.answer in each.text)
                for turn in own
                if turn.answer is not None and self._has_a_place(turn)
            ]
            assert first == sorted(first), f"answers to {person} out of order: {first}, {seen[person]}"

    def _is_answered(self, turn: Turn, seen: list[Shown]) -> bool:
        if turn.person in self.once:
            answers = [shown.text for shown in seen if shown.about in turn.ids]
            about = {shown.about for shown in seen if shown.about in turn.ids}
            good = FAILURES if turn.answer is None else {turn.answer}
            return len(answers) == 1 and answers[0] in good and about == {turn.ids[-1]}
        if turn.person in self.silent or turn.answer is None:
            return True
        return any(turn.answer in shown.text for shown in seen)

    def _has_a_place(self, turn: Turn) -> bool:
        """Whether its answer is to come after those before: not where nobody knew that it would be answered at all."""
        taken = {message.text for message in self.messages if message.acknowledged}
        return turn.person not in self.silent and turn.texts[-1] in taken and FETCH not in turn.texts

    def _trace(self, turn: Turn) -> str:
        """What could be an answer to it, and how it was said."""
        shown = [
            shown
            for shown in self.shown
            if shown.person == turn.person and (shown.about in turn.ids or (turn.answer or "?") in shown.text)
        ]
        return f"shown: {shown}; said: {[line for text in turn.texts for line in self.story[text]]}"

    def repeats(self, turns: list[Turn]) -> int:
        """How many answers were shown a second time."""
        shown = collections.Counter(
            turn.answer for turn in turns if turn.answer for each in self.shown if turn.answer in each.text
        )
        return sum(times - 1 for times in shown.values())
