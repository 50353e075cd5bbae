"""XML of WeChat and WeCom: the fields of what came in, text made safe for what goes out. Pure.

Entities and document types are refused; expat itself bounds nothing, so a document is at most `MOST_BYTES` long.
"""

import re
from collections.abc import Mapping
from xml.parsers import expat

MOST_BYTES = 256 * 1024

_ILLEGAL = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What no XML 1.0 document may hold (W3C XML 1.0, § 2.2), not even escaped."""

_DEEPEST = 16


class BadXml(ValueError):
    """The bytes are no document that a platform would send. The message is for logs: nothing of the content."""


class _Reader:
    """Collects the text of the root's children; what is nested deeper belongs to no field."""

    def __init__(self) -> None:
        self.fields: dict[str, str] = {}
        self._depth = 0
        self._text: list[str] = []

    def start(self, name: str, attributes: Mapping[str, str]) -> None:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise BadXml("nested too deep")
        if self._depth == 2:
            if name in self.fields:
                raise BadXml("an element occurs twice")
            self._text = []

    def end(self, name: str) -> None:
        if self._depth == 2:
            self.fields[name] = "".join(self._text)
        self._depth -= 1

    def text(self, data: str) -> None:
        if self._depth == 2:
            self._text.append(data)

    @staticmethod
    def refuse(*_: object) -> None:
        raise BadXml("a document type or entity")


def read_fields(data: bytes) -> Mapping[str, str]:
    """The root's children, name → text (blanks kept). Characters XML forbids are dropped first. Raises BadXml."""
    if len(data) > MOST_BYTES:
        raise BadXml(f"more than {MOST_BYTES} bytes")
    try:
        text = legal(data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise BadXml("no UTF-8") from error
    reader = _Reader()
    parser = expat.ParserCreate("utf-8")  # whatever the document declares
    parser.buffer_text = True
    parser.StartElementHandler = reader.start
    parser.EndElementHandler = reader.end
    parser.CharacterDataHandler = reader.text
    parser.StartDoctypeDeclHandler = reader.refuse
    parser.EntityDeclHandler = reader.refuse
    try:
        parser.Parse(text.encode("utf-8"), True)
    except expat.ExpatError as error:
        raise BadXml(f"malformed (expat {error.code})") from error
    return reader.fields


def legal(text: str) -> str:
    """The text without the characters XML forbids: control characters, lone surrogates, U+FFFE, U+FFFF."""
    return _ILLEGAL.sub("", text)


def cdata(text: str) -> str:
    """The text as CDATA that it cannot end."""
    return f"<![CDATA[{legal(text).replace(']]>', ']]]]><![CDATA[>')}]]>"
