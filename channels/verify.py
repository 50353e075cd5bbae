"""Whether what arrived is authentic and fresh: compare, age, decrypt, sign, remember nonces. Pure but for the memory."""

import base64
import binascii
import hashlib
import hmac
import re
from collections import OrderedDict

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

_TIMESTAMP = re.compile(r"[0-9]{1,12}")


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


class SeenNonces:
    """Remembers nonces for `window` seconds, at most `capacity` of them, the oldest forgotten first."""

    def __init__(self, window: float, capacity: int = 100_000) -> None:
        self._window = window
        self._capacity = capacity
        self._seen: OrderedDict[str, float] = OrderedDict()

    def first(self, nonce: str, now: float) -> bool:
        """Whether this nonce is new; it is remembered from now on."""
        while self._seen and next(iter(self._seen.values())) < now - self._window:
            self._seen.popitem(last=False)
        if nonce in self._seen:
            return False
        self._seen[nonce] = now
        if len(self._seen) > self._capacity:
            self._seen.popitem(last=False)
        return True

    def __len__(self) -> int:
        return len(self._seen)
