"""Signatures, ciphers, freshness, nonces: vectors of the platforms' documentation and everything malformed."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from channels.verify import (
    Undecryptable,
    decode_base64,
    decrypt_cbc,
    feishu_decrypt,
    feishu_signature,
    fresh,
    same,
)
from tests.platforms.feishu_server import encrypt

DECRYPTED = [
    ("test key", "P37w+VZImNgPEO1RBhJ6RtKl7n6zymIbEG1pReEzghk=", "hello world"),
    ("test key", "MDEyMzQ1Njc4OWFiY2RlZnu9LlFKV10D5I71E4diiao=", "hello world"),
    ("test key", "AAAAAAAAAAAAAAAAAAAAAG7r1HIKTeMwrz9wqmZ5faA=", ""),
    (
        "k1",
        "AAECAwQFBgcICQoLDA0ODzgKJqQ8/nfJfGyb2us0PIAqE8G7HviO7jJTImsPtDZqUT5zvZ22Xy2OcmJIadRmCMAZIncY6GiprFzQrJAnHmM=",
        '{"challenge":"c-123","token":"v-tok","type":"url_verification"}',
    ),
    ("密钥", "EBESExQVFhcYGRobHB0eHz0sYS2QLacTnPTrjyVVoUo17XSo39jM1xigVHGn85mP", "你好，飞书 🚀"),
    ("x" * 64, "/////////////////////+A7C7InWx6XpQ4JyawZIiAaRBKZAzFRE8DH/rrVXt7c", "0123456789abcdef"),
    (
        "Kp8s",
        "ZmVpc2h1LWl2LTE2Ynl0ZVp+5P3Ifwtp5ySX50MKQwOzP7CM4qRFiKFNXw4JMR54RFFDQTzt3YnUjYy/2P9PDw==",
        '{"schema":"2.0","header":{"event_id":"ev1"}}',
    ),
]
SIGNED = [
    (
        "1700000000",
        "nonce-1",
        "test key",
        '{"encrypt":"P37w+VZImNgPEO1RBhJ6RtKl7n6zymIbEG1pReEzghk="}',
        "002a272a435d056759149cce18e88064ff320d38d91a09432445c344c4296949",
    ),
    ("1700000000", "nonce-1", "", "{}", "5df084eb963fa65ba22822268e6ffe2fd41e478c940c0dc906ac5b99e552d693"),
    ("1700000001", "随机", "密钥", '{"a":"你好"}', "caab639ceec68a6c9407c0591c6d4221e64cbd463f8e2d087c82cbb6eee80c8c"),
]


@pytest.mark.parametrize(("key", "encrypted", "plain"), DECRYPTED)
def test_feishu_vectors_are_decrypted(key: str, encrypted: str, plain: str) -> None:
    assert feishu_decrypt(key, encrypted).decode() == plain


@pytest.mark.parametrize(("timestamp", "nonce", "key", "body", "signature"), SIGNED)
def test_feishu_vectors_are_signed(timestamp: str, nonce: str, key: str, body: str, signature: str) -> None:
    assert feishu_signature(timestamp, nonce, key, body.encode()) == signature


@given(st.text(min_size=1, max_size=40), st.text(max_size=200))
def test_what_was_encrypted_is_decrypted(key: str, plain: str) -> None:
    assert feishu_decrypt(key, encrypt(key, plain)).decode() == plain


@pytest.mark.parametrize(
    "encrypted",
    [
        "",
        "%%%",
        "not base64!",
        "AAAA",
        base64.b64encode(b"x" * 31).decode(),
        base64.b64encode(b"x" * 40).decode(),
        "好",
    ],
)
def test_malformed_ciphertexts_are_refused(encrypted: str) -> None:
    with pytest.raises(Undecryptable):
        feishu_decrypt("test key", encrypted)


def test_another_key_never_gives_the_plain_text() -> None:
    encrypted = encrypt("right", "hello world")
    for number in range(50):
        try:
            assert feishu_decrypt(f"wrong{number}", encrypted) != b"hello world"
        except Undecryptable:
            continue


def test_padding_is_checked_to_the_last_byte() -> None:
    key, iv = b"k" * 32, b"i" * 16
    with pytest.raises(Undecryptable):
        decrypt_cbc(key, iv, b"")
    with pytest.raises(Undecryptable):
        decrypt_cbc(key, iv, b"x" * 16)


def test_base64_is_strict() -> None:
    assert decode_base64("aGk=") == b"hi"
    for bad in ("aGk", "aGk=\n", "a-k=", "aGk=x"):
        with pytest.raises(Undecryptable):
            decode_base64(bad)


@pytest.mark.parametrize(
    ("given_text", "expected", "answer"),
    [("a", "a", True), ("a", "b", False), ("", "", False), ("a", "", False), ("密钥", "密钥", True), ("é", "e", False)],
)
def test_same_compares_any_characters_and_no_unset_secret(given_text: str, expected: str, answer: bool) -> None:
    assert same(given_text, expected) is answer
    assert same(given_text.encode(), expected) is answer


def test_same_survives_half_an_emoji() -> None:
    assert same("\ud83d", "\ud83d")
    assert not same("\ud83d", "x")


@pytest.mark.parametrize(
    ("timestamp", "answer"),
    [
        ("1000", True),
        ("400", True),
        ("1600", True),
        ("399", False),
        ("1601", False),
        ("", False),
        ("1", False),
        ("-1000", False),
        ("1000.0", False),
        (" 1000", False),
        ("１０００", False),
        ("9" * 5000, False),
    ],
)
def test_freshness(timestamp: str, answer: bool) -> None:
    assert fresh(timestamp, now=1000.0, window=600.0) is answer
