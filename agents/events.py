"""Server-sent events: the `data` of each, out of bytes cut anywhere.

https://html.spec.whatwg.org/multipage/server-sent-events.html#event-stream-interpretation; the other fields mean nothing in
an answer of a model.
"""

from collections.abc import Iterator

_BOM = b"\xef\xbb\xbf"


class EventReader:
    """Takes an answer's bytes piece by piece. Raises UnicodeDecodeError where they are no UTF-8."""

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[bytes] = []
        self._begun = False

    def feed(self, piece: bytes) -> Iterator[str]:
        """The data of the events that end in this piece."""
        buffer = self._rest + piece
        if not self._begun:
            if len(buffer) < len(_BOM) and _BOM.startswith(buffer):
                self._rest = buffer
                return
            buffer, self._begun = buffer.removeprefix(_BOM), True
        lines = buffer.splitlines(keepends=True)
        # A last line without its end, or with a CR that a LF may follow, is not whole yet.
        self._rest = lines.pop() if lines and not lines[-1].endswith(b"\n") else b""
        yield from self._events(lines)

    def close(self) -> Iterator[str]:
        """The data of an event that ends with the answer."""
        lines, self._rest = [self._rest, b"\n"], b""
        yield from self._events(lines)

    def _events(self, lines: list[bytes]) -> Iterator[str]:
        for line in lines:
            content = line.rstrip(b"\r\n")
            if content.startswith(b"data:"):
                self._data.append(content[5:].removeprefix(b" "))
            elif content == b"data":
                self._data.append(b"")
            elif not content and self._data:
                data, self._data = b"\n".join(self._data), []
                yield data.decode()
