"""Cipher and signature against the platform's own values, generated ones, and another implementation (wechatpy)."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wechatpy.crypto import WeChatCrypto
from wechatpy.exceptions import InvalidSignatureException
from wechatpy.messages import TextMessage
from wechatpy.parser import parse_message
from wechatpy.utils import check_signature

from channels.verify import Undecryptable, WeChatCipher, same, wechat_signature
from channels.wechat.envelope import Envelope, Forged
from tests.channels.wechat_stage import settings
from tests.platforms.wechat_platform import AES_KEY, APP_ID, TOKEN, envelope, message_xml

VECTORS: list[dict[str, Any]] = json.loads(
    (Path(__file__).parent / "data" / "wechat-vectors.json").read_text(encoding="utf-8")
)["vectors"]


def of(*kinds: str) -> Any:
    chosen = [vector for vector in VECTORS if vector["kind"] in kinds]
    return pytest.mark.parametrize("vector", chosen, ids=[vector["id"] for vector in chosen])


def cipher(vector: dict[str, Any]) -> WeChatCipher:
    return WeChatCipher(vector["encoding_aes_key"], vector["receiveid"])


@of("signature3")
def test_plain_signatures(vector: dict[str, Any]) -> None:
    assert wechat_signature(vector["token"], vector["timestamp"], vector["nonce"]) == vector["signature"]


@of("encrypt", "decrypt")
def test_published_and_generated_ciphertexts(vector: dict[str, Any]) -> None:
    stamp = (vector["token"], vector["timestamp"], vector["nonce"])
    assert wechat_signature(*stamp, vector["ciphertext"]) == vector["msg_signature"]
    assert cipher(vector).decrypt(vector["ciphertext"]).decode() == vector["plaintext"]
    again = cipher(vector).encrypt(vector["plaintext"].encode(), vector["random16"].encode())
    assert again == vector["ciphertext"], "byte for byte"


@of("negative")
def test_every_negative_is_refused_by_the_envelope(vector: dict[str, Any]) -> None:
    account = settings(app_id=vector["receiveid"], token=vector["token"], encoding_aes_key=vector["encoding_aes_key"])
    opened = Envelope(account, lambda: float(vector["timestamp"]))
    query = {name: vector[name] for name in ("timestamp", "nonce", "msg_signature")}
    with pytest.raises(Forged):
        opened.open(query.items(), envelope(vector["ciphertext"]).encode())


@of("negative-signature3")
def test_an_empty_token_equals_nothing(vector: dict[str, Any]) -> None:
    assert wechat_signature("", "", "") == vector["signature"]
    with pytest.raises(ValueError, match="token"):
        settings(token="")
    assert not same("", "")


@of("negative")
def test_padding_and_receiver_are_checked_beneath_the_signature(vector: dict[str, Any]) -> None:
    if vector["reject"] == "signature":
        return
    with pytest.raises(Undecryptable):
        cipher(vector).decrypt(vector["ciphertext"])


@given(st.binary(max_size=200), st.integers(0, 300), st.integers(0, 7))
def test_any_changed_bit_is_noticed_or_harmless(message: bytes, place: int, bit: int) -> None:
    """CBC alone cannot notice a changed bit inside the message (the signature does), but nothing ever breaks."""
    made = bytearray(base64.b64decode(WeChatCipher(AES_KEY, APP_ID).encrypt(message, b"r" * 16)))
    made[place % len(made)] ^= 1 << bit
    try:
        opened = WeChatCipher(AES_KEY, APP_ID).decrypt(base64.b64encode(made).decode())
    except Undecryptable:
        return
    assert len(opened) == len(message)


@given(st.text(max_size=300))
def test_the_peer_reads_what_we_encrypt_and_we_what_it_does(text: str) -> None:
    text = text.encode("utf-8", "replace").decode()
    ours, peer = WeChatCipher(AES_KEY, APP_ID), WeChatCrypto(TOKEN, AES_KEY, APP_ID)
    made = ours.encrypt(text.encode(), b"0123456789abcdef")
    signed = wechat_signature(TOKEN, "1790000000", "n1", made)
    assert peer.decrypt_message(envelope(made), signed, "1790000000", "n1") == text
    theirs = peer.encrypt_message(text, "n1", "1790000000")
    found = theirs.split("<Encrypt><![CDATA[")[1].split("]]>")[0]
    assert ours.decrypt(found).decode() == text
    assert wechat_signature(TOKEN, "1790000000", "n1", found) in theirs


def test_the_peer_reads_our_replies() -> None:
    account = settings()
    reply = Envelope(account, lambda: 1790000000.0).text_reply({"FromUserName": "oA", "ToUserName": "gh"}, "a]]>b 好")
    fields = {name: reply.split(f"<{name}>")[1].split(f"</{name}>")[0] for name in ("MsgSignature", "Nonce")}
    bare = {name: value.removeprefix("<![CDATA[").removesuffix("]]>") for name, value in fields.items()}
    peer = WeChatCrypto(TOKEN, AES_KEY, APP_ID)
    inner = peer.decrypt_message(reply, bare["MsgSignature"], "1790000000", bare["Nonce"])
    message = parse_message(inner)
    assert isinstance(message, TextMessage)
    assert (message.content, message.source, message.target) == ("a]]>b 好", "gh", "oA")
    with pytest.raises(InvalidSignatureException):
        peer.decrypt_message(reply, bare["MsgSignature"], "1790000001", bare["Nonce"])


def test_we_open_what_the_peer_makes() -> None:
    made = WeChatCrypto(TOKEN, AES_KEY, APP_ID).encrypt_message(message_xml("oA", Content="你好"), "n1", "1790000000")
    signature = made.split("<MsgSignature><![CDATA[")[1].split("]]>")[0]
    query = {"timestamp": "1790000000", "nonce": "n1", "msg_signature": signature}
    fields = Envelope(settings(), lambda: 1790000000.0).open(query.items(), made.encode())
    assert fields["Content"] == "你好"
    check_signature(TOKEN, wechat_signature(TOKEN, "1790000000", "n1"), "1790000000", "n1")


@pytest.mark.parametrize("key", ["x" * 42, "x" * 44, " " + "x" * 42, "x" * 42 + "=", "好" * 43, ""])
def test_a_key_of_another_form_is_no_key(key: str) -> None:
    with pytest.raises(ValueError, match="43"):
        WeChatCipher(key, APP_ID)
