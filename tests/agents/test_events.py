"""Events out of bytes: whatever the cuts and line ends, what the SDK's own decoder reads."""

import asyncio
from collections.abc import AsyncIterator

from hypothesis import given
from hypothesis import strategies as st
from openai._streaming import SSEDecoder

from agents.events import EventReader

LINES = st.lists(
    st.sampled_from(
        [
            b'data: {"a": 1}',
            "data: 你好".encode(),
            b"data:x",
            b"data:  two",
            b"data",
            b"data: [DONE]",
            b": a comment",
            b"event: ping",
            b"id: 7",
            b"",
            b"",
        ]
    ),
    max_size=12,
)
ENDS = st.sampled_from([b"\n", b"\r\n", b"\r"])


def read(pieces: list[bytes]) -> list[str]:
    reader = EventReader()
    return [data for piece in pieces for data in reader.feed(piece)]


def read_by_the_sdk(pieces: list[bytes]) -> list[str]:
    async def source() -> AsyncIterator[bytes]:
        for piece in pieces:
            yield piece

    async def collect() -> list[str]:
        return [event.data async for event in SSEDecoder().aiter_bytes(source())]

    return asyncio.run(collect())


@given(LINES, ENDS, st.lists(st.integers(1, 9), min_size=1, max_size=5))
def test_what_the_sdk_reads(lines: list[bytes], end: bytes, sizes: list[int]) -> None:
    raw = b"".join(line + end for line in lines) + b"data: last\n\n"
    pieces, at, turn = [], 0, 0
    while at < len(raw):
        size = sizes[turn % len(sizes)]
        pieces.append(raw[at : at + size])
        at, turn = at + size, turn + 1
    sdk = [data for data in read_by_the_sdk([raw]) if data]  # it also tells of events without data
    assert [data for data in read(pieces) if data] == sdk
    assert read(pieces) == read([raw])


def test_the_last_event_needs_no_blank_line() -> None:
    reader = EventReader()
    assert list(reader.feed(b"\xef\xbb\xbfdata: a\n\ndata: b")) == ["a"]
    assert list(reader.close()) == ["b"]
    assert list(EventReader().close()) == []
