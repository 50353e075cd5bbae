"""What asking a platform told about one entry of the config: for admins, before anybody writes to the bot."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Probe:
    """Whether an entry can work from this machine; `detail` is one line (Chinese, no secret) with the remedy."""

    ok: bool
    detail: str


def unreachable(platform: str, address: str, reason: str, keys: str) -> Probe:
    """The platform at `address` did not answer, or not sensibly; `keys` are those of the config to look at."""
    return Probe(False, f"没有得到{platform}的有效答复（{address}：{reason}）；请检查网络、DNS、proxy 与 {keys}")
