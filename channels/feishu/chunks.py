"""Large events come in several frames, in any order: joined here, within a bound of time and memory. Pure."""

from collections import OrderedDict
from dataclasses import dataclass, field

from channels.feishu.frame import Frame

_MOST_CHUNKS = 1024
_MOST_EVENTS = 1024


@dataclass(slots=True)
class _Gathering:
    total: int
    touched: float
    pieces: dict[int, bytes] = field(default_factory=dict)

    @property
    def size(self) -> int:
        return sum(map(len, self.pieces.values()))


class Chunks:
    """Frames that wait for the rest of their event: each for `ttl` seconds after its last one, `most_bytes` in all."""

    def __init__(self, ttl: float = 15.0, most_bytes: int = 64 << 20) -> None:
        self._ttl = ttl
        self._most_bytes = most_bytes
        self._waiting: OrderedDict[str, _Gathering] = OrderedDict()
        self._bytes = 0

    def add(self, frame: Frame, now: float) -> bytes | None:
        """The whole payload when this frame completes it, else None. A frame with impossible numbers is dropped."""
        total, place, key = _number(frame, "sum", 1), _number(frame, "seq", 0), frame.header("message_id")
        if total == 1:
            return frame.payload
        self._expire(now)
        if not (key and 1 < total <= _MOST_CHUNKS and 0 <= place < total):
            return None
        gathering = self._waiting.get(key)
        if gathering is None or gathering.total != total:
            self._drop(key)
            gathering = self._waiting[key] = _Gathering(total, now)
        self._waiting.move_to_end(key)
        gathering.touched = now
        self._bytes += len(frame.payload) - len(gathering.pieces.get(place, b""))
        gathering.pieces[place] = frame.payload
        if len(gathering.pieces) == total:
            self._drop(key)
            return b"".join(gathering.pieces[index] for index in range(total))
        while self._bytes > self._most_bytes or len(self._waiting) > _MOST_EVENTS:
            self._drop(next(iter(self._waiting)))
        return None

    def __len__(self) -> int:
        return len(self._waiting)

    def _expire(self, now: float) -> None:
        while self._waiting:
            key, oldest = next(iter(self._waiting.items()))
            if oldest.touched >= now - self._ttl:
                return
            self._drop(key)

    def _drop(self, key: str) -> None:
        gathering = self._waiting.pop(key, None)
        if gathering is not None:
            self._bytes -= gathering.size


def _number(frame: Frame, header: str, default: int) -> int:
    text = frame.header(header)
    if not text:
        return default
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else -1
