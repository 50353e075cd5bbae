"""Whether an address that came with a message may be posted to. Pure.

In HTTP mode the signature does not cover the body, so the address is whatever the sender wrote: without this check
the gateway could be made to post anywhere, its own network included.
"""

from yarl import URL


def session_webhook(address: str, oapi_base: str) -> URL | None:
    """The address, if it is https on dingtalk.com (or on the configured oapi host); None for any other."""
    try:
        url, base = URL(address), URL(oapi_base)
        if not url.host or url.user is not None or url.password is not None:
            return None
        if url.origin() == base.origin():
            return url
        port = url.port
    except ValueError:
        return None
    ours = url.host == "dingtalk.com" or url.host.endswith(".dingtalk.com")
    return url if url.scheme == "https" and ours and port == 443 else None
