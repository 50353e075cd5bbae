"""Who may use the console: the token, one-time links, login sessions, and the brake on guessing."""

import hashlib
import hmac
import os
import secrets
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from enum import Enum, auto
from pathlib import Path

from gateway.config.token_strength import is_strong

IDLE_SECONDS = 8 * 3600.0
ONCE_SECONDS = 60.0
_MAX_SESSIONS = 1000
_MAX_ONCE = 20
_MAX_PEERS = 1024
_FAILURES = 5
_FAILURE_SECONDS = 60.0

Clock = Callable[[], float]
"""Seconds that never run backwards."""


class TokenUnusable(Exception):
    """The kept token cannot be read or made; the message (Chinese) names the file and the remedy."""


def console_token(configured: str, workspace: Path) -> str:
    """The console's token: the configured one, else the one in `workspace`/console-token, made (0600) if not there.

    Blocks on files. Raises TokenUnusable.
    """
    if configured:
        return configured
    path = workspace / "console-token"
    try:
        if path.is_symlink():
            raise TokenUnusable(f"{path} 不能是符号链接；请删除它，下次启动时会重新生成")
        if path.exists() and not path.is_file():
            raise TokenUnusable(f"{path} 不是普通的文件；请移走，下次启动时会重新生成")
        if path.exists() and (kept := path.read_text("ascii").strip()):
            path.chmod(0o600)
            return kept
        return _new_token(path)
    except UnicodeDecodeError:
        raise TokenUnusable(f"{path} 里不是令牌；请删除它，下次启动时会重新生成") from None
    except OSError as error:
        raise TokenUnusable(
            f"无法读写 {path}（{type(error).__name__}）；请检查权限，或在配置里写 console.token"
        ) from None


def _new_token(path: Path) -> str:
    token = secrets.token_urlsafe(32)
    draft = path.with_name(path.name + ".new")
    draft.unlink(missing_ok=True)
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w", encoding="ascii") as file:
        file.write(token + "\n")
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
    return token


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()


class Verdict(Enum):
    """What became of a presented token."""

    RIGHT = auto()
    WRONG = auto()
    THROTTLED = auto()


class Throttle:
    """Counts failures of each peer in the last minute; remembers a bounded number of peers, the newest."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._failures: OrderedDict[str, deque[float]] = OrderedDict()

    def failed(self, peer: str) -> None:
        """Notes one failure."""
        times = self._failures.setdefault(peer, deque(maxlen=_FAILURES))
        times.append(self._clock())
        self._failures.move_to_end(peer)
        if len(self._failures) > _MAX_PEERS:
            self._failures.popitem(last=False)

    def blocked(self, peer: str) -> bool:
        """Whether this peer failed too often within the last minute."""
        times = self._failures.get(peer)
        return times is not None and len(times) == _FAILURES and self._clock() - times[0] < _FAILURE_SECONDS


class Logins:
    """The credentials the console takes. Only digests are kept; `repr` shows none.

    `random` makes ids no one can guess.
    """

    def __init__(
        self,
        token: str,
        *,
        clock: Clock = time.monotonic,
        random: Callable[[], str] = secrets.token_urlsafe,
    ) -> None:
        if not token:
            raise ValueError("an empty token never verifies")
        self._token = _digest(token)
        self._strong = is_strong(token)
        self._clock = clock
        self._random = random
        self._throttle = Throttle(clock)
        self._once: OrderedDict[bytes, float] = OrderedDict()
        self._sessions: OrderedDict[bytes, float] = OrderedDict()

    def present(self, token: str, peer: str) -> Verdict:
        """Checks a token that `peer` presents, in constant time; after five failures in a minute it has to wait.

        Whoever has a strong one is not locked out by others who fail from the same address.
        """
        right = bool(token) and hmac.compare_digest(_digest(token), self._token)
        if self._throttle.blocked(peer) and not (right and self._strong):
            return Verdict.THROTTLED
        if right:
            return Verdict.RIGHT
        self._throttle.failed(peer)
        return Verdict.WRONG

    def make_once(self, lifetime: float = ONCE_SECONDS) -> str:
        """A new one-time code, good for `lifetime` seconds."""
        code = self._random()
        self._once[_digest(code)] = self._clock() + lifetime
        if len(self._once) > _MAX_ONCE:
            self._once.popitem(last=False)
        return code

    def redeem(self, code: str, peer: str) -> Verdict:
        """Uses a one-time code up."""
        if self._throttle.blocked(peer):
            return Verdict.THROTTLED
        if self._once.pop(_digest(code), 0.0) > self._clock():
            return Verdict.RIGHT
        self._throttle.failed(peer)
        return Verdict.WRONG

    def open_session(self) -> str:
        """A new session id, for the cookie."""
        session = self._random()
        self._sessions[_digest(session)] = self._clock()
        if len(self._sessions) > _MAX_SESSIONS:
            self._sessions.popitem(last=False)
        return session

    def session_alive(self, session: str) -> bool:
        """Whether this id is logged in; using it puts its end off."""
        key, now = _digest(session), self._clock()
        used = self._sessions.pop(key, None)
        if used is None or now - used >= IDLE_SECONDS:
            return False
        self._sessions[key] = now
        return True

    def close_session(self, session: str) -> None:
        """Logs this id out."""
        self._sessions.pop(_digest(session), None)
