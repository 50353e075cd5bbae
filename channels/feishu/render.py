"""An answer's text becomes the content of a Feishu message: a post with one `md` element, or plain text. Pure.

Text of a model or a user can mention nobody: see channels.markup.
"""

from channels import markup
from channels.json_values import to_json

PART_BYTES = 7000
"""One byte of text is at most four in the request (a quote, escaped twice), and a post may have 30 KB."""


def post_content(text: str) -> str:
    """The `content` of a `post` that shows this text, which came out of `markup.feishu`."""
    return to_json({"zh_cn": {"title": "", "content": [[{"tag": "md", "text": text}]]}})


def text_content(text: str) -> str:
    """The `content` of a `text` message that shows this text as it is."""
    return to_json({"text": markup.without_tags(text)})
