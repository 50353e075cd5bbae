"""Files that people saved in another charset than UTF-8, as Chinese editors on Windows do."""

import codecs
import contextlib


def decoded(raw: bytes) -> str:
    """UTF-8, or else GB18030 (which holds GBK).

    Damaged UTF-8 is often GB18030 by chance, so it is only taken for that where more of it is wrong as UTF-8 than is
    right. What is neither has U+FFFD in the place of its wrong bytes.
    """
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        patched = raw.decode("utf-8", "replace")
    wrong = patched.count("\ufffd")
    if wrong > sum(letter >= "\u0800" for letter in patched) - wrong:
        with contextlib.suppress(UnicodeDecodeError):
            return raw.decode("gb18030")
    return patched


def line_not_utf8(data: bytes) -> int:
    """The first line (from 1) of a YAML file that is no UTF-8; 0 without one. UTF-16 with its mark is YAML too."""
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return 0
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        return data.count(b"\n", 0, error.start) + 1
    return 0
