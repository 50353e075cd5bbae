"""The frame of Feishu's long connection: protobuf `pbbp2.Frame`, one per binary WebSocket message.

message Header { required string key=1; required string value=2; }
message Frame  { required uint64 SeqID=1; required uint64 LogID=2; required int32 service=3; required int32 method=4;
                 repeated Header headers=5; optional string payload_encoding=6; optional string payload_type=7;
                 optional bytes payload=8; optional string LogIDNew=9; }
"""

from collections.abc import Iterator
from dataclasses import dataclass

CONTROL, DATA = 0, 1
_U64 = (1 << 64) - 1


class FrameError(ValueError):
    """Bytes that are no frame."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """One frame; `headers` keep their order, for an acknowledgement is the same frame sent back."""

    method: int
    headers: tuple[tuple[str, str], ...] = ()
    payload: bytes = b""
    service: int = 0
    seq_id: int = 0
    log_id: int = 0
    payload_encoding: str = ""
    payload_type: str = ""
    log_id_new: str = ""

    def header(self, key: str) -> str:
        """The value of a header, "" where it is missing."""
        return next((value for name, value in self.headers if name == key), "")

    def encode(self) -> bytes:
        """The bytes on the wire. The four numbers are required by the format: written even when 0."""
        numbers = ((1, self.seq_id), (2, self.log_id), (3, self.service), (4, self.method))
        out = [_varint(field << 3) + _varint(value) for field, value in numbers]
        out += [_blob(5, _blob(1, key.encode()) + _blob(2, value.encode())) for key, value in self.headers]
        texts = ((6, self.payload_encoding.encode()), (7, self.payload_type.encode()))
        for field, data in (*texts, (8, self.payload), (9, self.log_id_new.encode())):
            if data:
                out.append(_blob(field, data))
        return b"".join(out)

    @classmethod
    def decode(cls, data: bytes) -> "Frame":
        """Reads a frame; unknown fields are skipped. Raises FrameError."""
        numbers: dict[int, int] = {}
        blobs: dict[int, bytes] = {}
        headers: list[tuple[str, str]] = []
        for field, value in _fields(data):
            if isinstance(value, int):
                numbers[field] = value
            elif field == 5:
                pair = {key: part for key, part in _fields(value) if isinstance(part, bytes)}
                headers.append((_text(pair.get(1, b"")), _text(pair.get(2, b""))))
            else:
                blobs[field] = value
        if 4 not in numbers:
            raise FrameError("no method")
        return cls(
            method=_int32(numbers[4]),
            headers=tuple(headers),
            payload=blobs.get(8, b""),
            service=_int32(numbers.get(3, 0)),
            seq_id=numbers.get(1, 0),
            log_id=numbers.get(2, 0),
            payload_encoding=_text(blobs.get(6, b"")),
            payload_type=_text(blobs.get(7, b"")),
            log_id_new=_text(blobs.get(9, b"")),
        )


def _varint(number: int) -> bytes:
    number &= _U64
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _blob(field: int, data: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(data)) + data


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    number = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            raise FrameError("cut off in a number")
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number & _U64, at
    raise FrameError("number too long")


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    at = 0
    while at < len(data):
        key, at = _read_varint(data, at)
        wire = key & 7
        if wire == 0:
            number, at = _read_varint(data, at)
            yield key >> 3, number
            continue
        if wire == 2:
            size, at = _read_varint(data, at)
        elif wire in (1, 5):
            size = 8 if wire == 1 else 4
        else:
            raise FrameError(f"wire type {wire}")
        if at + size > len(data):
            raise FrameError("cut off in a field")
        if wire == 2:
            yield key >> 3, data[at : at + size]
        at += size


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise FrameError("text is not UTF-8") from error


def _int32(number: int) -> int:
    number &= 0xFFFFFFFF
    return number - (1 << 32) if number & 0x80000000 else number
