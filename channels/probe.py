"""What asking a platform told about one entry of the config: for admins, before anybody writes to the bot."""

from dataclasses import dataclass

from yarl import URL


@dataclass(frozen=True, slots=True)
class Probe:
    """Whether an entry can work from this machine; `detail` is one line (Chinese, no secret) with the remedy."""

    ok: bool
    detail: str


def unreachable(platform: str, address: str, reason: str, keys: str) -> Probe:
    """The platform at `address` did not answer, or not sensibly; `keys` are those of the config to look at."""
    where = shown(address)
    return Probe(False, f"没有得到{platform}的有效答复（{where}：{reason}）；请检查网络、DNS、proxy 与 {keys}")


def shown(address: str) -> str:
    """An address as an admin may see it: no user, no password, no query."""
    url = URL(address)
    return str(url.with_user(None).with_query(None).with_fragment(None))
