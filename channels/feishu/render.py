"""An answer's text becomes the content of a Feishu message: a post with one `md` element, or plain text. Pure.

Text of a model or a user can mention nobody: see channels.markup.
"""

import json

from channels import markup

PART_BYTES = 7000
"""One byte of text is at most four in the request (a quote, escaped twice), and a post may have 30 KB."""


def post_content(text: str) -> str:
    """The `content` of a `post` that shows this markdown; `md` knows neither headings, tables nor images of the web."""
    element = {"tag": "md", "text": markup.feishu(text)}
    return _json({"zh_cn": {"title": "", "content": [[element]]}})


def text_content(text: str) -> str:
    """The `content` of a `text` message that shows this text as it is."""
    return _json({"text": markup.without_tags(text)})


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
