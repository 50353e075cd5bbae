"""Whether what arrived is authentic and fresh: compare, age, decrypt, sign. Pure."""

import base64
import binascii
import hashlib
import hmac
import re
import struct

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

_TIMESTAMP = re.compile(r"[0-9]{1,12}")
_ENCODING_AES_KEY = re.compile(r"[A-Za-z0-9+/]{43}")


class Undecryptable(ValueError):
    """A ciphertext is malformed or was made with another key."""


def _bytes(text: str | bytes) -> bytes:
    return text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")


def same(given: str | bytes, expected: str | bytes) -> bool:
    """Compares in constant time, any characters; an empty `expected` equals nothing, for it is a secret not set."""
    wanted = _bytes(expected)
    return hmac.compare_digest(_bytes(given), wanted) and bool(wanted)


def fresh(timestamp: str, now: float, window: float) -> bool:
    """Whether `timestamp` (unix seconds in ASCII digits) is at most `window` seconds from `now`, either way."""
    return bool(_TIMESTAMP.fullmatch(timestamp)) and abs(now - int(timestamp)) <= window


def decode_base64(text: str | bytes) -> bytes:
    """Strict base64: alphabet and padding as in RFC 4648 §4, nothing skipped. Raises Undecryptable."""
    try:
        return base64.b64decode(_bytes(text), validate=True)
    except binascii.Error as error:
        raise Undecryptable("no base64") from error


def decrypt_cbc(key: bytes, iv: bytes, data: bytes, block: int = 16) -> bytes:
    """AES-CBC with PKCS#7 padding to `block` bytes, checked to the last byte. Raises Undecryptable."""
    if not data or len(data) % 16:
        raise Undecryptable("length is no multiple of the block")
    decryptor = Cipher(algorithms.AES(key), modes.CBC(iv)).decryptor()
    plain = decryptor.update(data) + decryptor.finalize()
    size = plain[-1]
    if not 1 <= size <= min(block, len(plain)) or plain[-size:] != bytes([size]) * size:
        raise Undecryptable("bad padding")
    return plain[:-size]


def feishu_signature(timestamp: str, nonce: str, encrypt_key: str, body: bytes) -> str:
    """`X-Lark-Signature` over the raw body (open.feishu.cn, 事件订阅 › 安全校验)."""
    return hashlib.sha256(_bytes(timestamp + nonce + encrypt_key) + body).hexdigest()


def feishu_decrypt(encrypt_key: str, encrypted: str) -> bytes:
    """The plain text of `encrypt`: AES-256-CBC, key SHA-256 of the Encrypt Key, IV in front. Raises Undecryptable."""
    data = decode_base64(encrypted)
    if len(data) < 32:
        raise Undecryptable("too short")
    return decrypt_cbc(hashlib.sha256(_bytes(encrypt_key)).digest(), data[:16], data[16:])


def wechat_signature(*parts: str) -> str:
    """SHA-1 over the sorted parts: token, timestamp, nonce, and where the body is covered its ciphertext.

    developers.weixin.qq.com, 消息推送 › 安全模式; the same for WeCom. Nothing separates the parts, so a timestamp that is
    not exactly ten digits must be refused besides.
    """
    return hashlib.sha1(_bytes("".join(sorted(parts))), usedforsecurity=False).hexdigest()


class WeChatCipher:
    """Encrypts and decrypts messages of one WeChat or WeCom account (developers.weixin.qq.com, 消息加解密说明).

    AES-256-CBC over 16 random bytes, the length (4 bytes, big-endian), the message and `receiveid`, padded to 32.
    `encoding_aes_key` has 43 characters, else ValueError. `receiveid` is an app-id, a corp-id, or "" for WeCom bots.
    Own cipher, because that of wechatpy 1.8.18 looks at one byte of the padding only, compares signatures with `!=`,
    and fails with many unrelated kinds of exceptions.
    """

    def __init__(self, encoding_aes_key: str, receiveid: str) -> None:
        if not _ENCODING_AES_KEY.fullmatch(encoding_aes_key):
            raise ValueError("an EncodingAESKey has 43 letters and digits")
        self._key = base64.b64decode(encoding_aes_key + "=")
        self._receiveid = _bytes(receiveid)

    def __repr__(self) -> str:
        return "WeChatCipher()"

    def decrypt(self, encrypted: str) -> bytes:
        """The message. Raises Undecryptable when anything is off, the receiver included."""
        data = decode_base64(encrypted)
        if len(data) < 32:
            raise Undecryptable("too short")
        plain = decrypt_cbc(self._key, self._key[:16], data, block=32)
        if len(plain) < 20:
            raise Undecryptable("too short")
        end = 20 + int(struct.unpack(">I", plain[16:20])[0])
        if end > len(plain):
            raise Undecryptable("length goes beyond the end")
        if not hmac.compare_digest(plain[end:], self._receiveid):
            raise Undecryptable("meant for another receiver")
        return plain[20:end]

    def encrypt(self, message: bytes, random16: bytes) -> str:
        """The ciphertext in base64; `random16` are 16 unpredictable bytes."""
        data = random16 + struct.pack(">I", len(message)) + message + self._receiveid
        size = 32 - len(data) % 32
        encryptor = Cipher(algorithms.AES(self._key), modes.CBC(self._key[:16])).encryptor()
        return base64.b64encode(encryptor.update(data + bytes([size]) * size) + encryptor.finalize()).decode("ascii")
