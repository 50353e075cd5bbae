"""Our frame codec, cipher and signature against lark-oapi, which was written by others."""

import json
import random
import warnings
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from channels.feishu.frame import CONTROL, DATA, Frame, FrameError
from channels.verify import feishu_decrypt, feishu_signature
from tests.platforms.feishu_server import encrypt

PING = "0801100218f681801020002a0c0a0474797065120470696e67"


@pytest.fixture(scope="module")
def lark() -> Iterator[Any]:
    """The parts of lark-oapi that are compared; the import takes seconds and warns of its dependencies' age."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from lark_oapi.core.utils import AESCipher
        from lark_oapi.ws.client import loop
        from lark_oapi.ws.pb.pbbp2_pb2 import Frame as PeerFrame
    yield SimpleNamespace(Frame=PeerFrame, AESCipher=AESCipher)
    loop.close()  # made by the import, used by nobody


def random_frame(rng: random.Random) -> Frame:
    def word(most: int) -> str:
        return "".join(rng.choice("aZ0_-好🚀") for _ in range(rng.randrange(most)))

    return Frame(
        method=rng.choice([CONTROL, DATA]),
        headers=tuple((word(8), word(200)) for _ in range(rng.randrange(8))),
        payload=rng.randbytes(rng.choice([0, 1, 127, 128, 20_000])),
        service=rng.choice([0, 1, 33554678, -1, -(2**31), 2**31 - 1]),
        seq_id=rng.choice([0, 1, 2**63, 2**64 - 1]),
        log_id=rng.randrange(2**64),
        payload_encoding=word(3),
        payload_type=word(3),
        log_id_new=word(40),
    )


@pytest.mark.slow
def test_frames_are_byte_for_byte_those_of_the_peer(lark: Any) -> None:
    rng = random.Random(7)
    for _ in range(300):
        ours = random_frame(rng)
        peer = lark.Frame()
        peer.SeqID, peer.LogID, peer.service, peer.method = ours.seq_id, ours.log_id, ours.service, ours.method
        for key, value in ours.headers:
            header = peer.headers.add()
            header.key, header.value = key, value
        for name, value in (
            ("payload_encoding", ours.payload_encoding),
            ("payload_type", ours.payload_type),
            ("payload", ours.payload),
            ("LogIDNew", ours.log_id_new),
        ):
            if value:
                setattr(peer, name, value)
        assert ours.encode() == peer.SerializeToString()
        assert Frame.decode(peer.SerializeToString()) == ours


@pytest.mark.slow
@pytest.mark.parametrize("text", ["", "hello world", "你好，飞书 🚀", "x" * 16, json.dumps({"a": "b" * 5000})])
def test_what_either_side_encrypts_the_other_decrypts(lark: Any, text: str) -> None:
    encrypted = encrypt("密钥 key", text)
    assert feishu_decrypt("密钥 key", encrypted).decode() == text
    assert lark.AESCipher("密钥 key").decrypt_str(encrypted) == text


@pytest.mark.slow
def test_our_signature_satisfies_the_peer(lark: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from lark_oapi.core.model import RawRequest
        from lark_oapi.event.dispatcher_handler import EventDispatcherHandler
    handler = EventDispatcherHandler.builder("k密", "v-tok").build()
    request = RawRequest()
    request.uri, request.body = "/feishu", '{"encrypt":"好"}'.encode()
    signature = feishu_signature("1700000000", "n-1", "k密", request.body)
    request.headers = {
        "X-Lark-Request-Timestamp": "1700000000",
        "X-Lark-Request-Nonce": "n-1",
        "X-Lark-Signature": signature,
    }
    handler._verify_sign(request, "k密")
    request.body += b" "
    with pytest.raises(Exception, match="signature"):
        handler._verify_sign(request, "k密")


def test_the_ping_of_the_documentation() -> None:
    frame = Frame.decode(bytes.fromhex(PING))
    assert frame == Frame(method=CONTROL, service=33554678, seq_id=1, log_id=2, headers=(("type", "ping"),))
    assert frame.encode().hex() == PING
    assert (frame.header("type"), frame.header("sum")) == ("ping", "")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff\xfe",
        b"\x08",
        b"\x20\x01\x2a\x05ab",
        b"\x20\x01\x32\x01\xff",
        b"\x23",
        b"\x80" * 11,
        b"\x20\x01\x42\xff\xff\xff\xff\x0f",
    ],
)
def test_what_is_no_frame_is_refused(data: bytes) -> None:
    with pytest.raises(FrameError):
        Frame.decode(data)


def test_unknown_fields_are_skipped() -> None:
    extra = b"\x50\x05" + b"\x5d" + b"1234" + b"\x61" + b"12345678" + b"\x6a\x02hi"
    assert Frame.decode(Frame(method=DATA, payload=b"x").encode() + extra) == Frame(method=DATA, payload=b"x")


def test_no_bytes_raise_anything_else() -> None:
    rng = random.Random(3)
    good = random_frame(rng).encode()
    for _ in range(2000):
        damaged = bytearray(good[: rng.randrange(len(good))])
        for _ in range(rng.randrange(4)):
            if damaged:
                damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        try:
            Frame.decode(bytes(damaged))
        except FrameError:
            continue
