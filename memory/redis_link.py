"""The way to Redis: every use bounded in time, a pause after a failure, one log line per change of state.

Goes round three things in redis-py 8.1.0: its default retries hold a request for up to ten times the time-out; the
errors of its pipelines carry the whole command, so that of an error only its type is ever told; and it sends by
`asyncio.wait_for`, which before Python 3.12 loses a cancellation that comes when the command has just gone out.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, field_validator

from memory.settings import Duration, SettingsModel

if TYPE_CHECKING:
    from redis.asyncio import Redis

log = logging.getLogger("sanqiao.memory")

CONNECTIONS = 4
"""How many uses of Redis run at a time, and so how many at most meet a Redis that has just died."""

_Result = TypeVar("_Result")


class RedisSettings(SettingsModel):
    """`memory.redis`: the short-term store; off while `url` (which may hold a password) is empty."""

    url: SecretStr = SecretStr("")
    prefix: str = Field("gateway:", min_length=1)
    ttl: Duration = Field(86400.0, gt=0)
    cooldown: Duration = Field(15.0, gt=0)
    timeout: Duration = Field(0.3, gt=0)

    @field_validator("url")
    @classmethod
    def _is_an_address(cls, url: SecretStr) -> SecretStr:
        if url.get_secret_value() and not _readable(url.get_secret_value()):
            raise ValueError("应为 Redis 地址；例如 redis://127.0.0.1:6379/0，有密码时 redis://:密码@主机:6379/0")
        return url


def _readable(url: str) -> bool:
    """Whether redis-py can read it; a port or a database that is no number it would pass over."""
    from redis.asyncio.connection import parse_url

    try:
        parts = urlsplit(url)
        parse_url(url)
        port = parts.port
    except ValueError:
        return False
    if parts.scheme == "unix":
        return bool(parts.path)
    database = parts.path.strip("/")
    return bool(parts.hostname) and port != 0 and (not database or database.isdecimal())


@dataclass(frozen=True, slots=True)
class RedisStatus:
    """`state` is ``off``, ``ok`` or ``down``; `cooldown_left` the seconds without an attempt; `remedy` for admins."""

    state: str
    cooldown_left: float = 0.0
    remedy: str = ""


class RedisLink:
    """One Redis, used when it is well.

    After a failure nothing is tried for `cooldown` seconds, over the whole process; then one attempt is. Only one that
    writes tells that Redis is usable again: a read-only replica and a full server answer reads.
    """

    def __init__(self, settings: RedisSettings, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._timeout = settings.timeout
        self._cooldown = settings.cooldown
        self._clock = clock
        self._client = _client(settings)
        self._slots = asyncio.Semaphore(CONNECTIONS)
        self._usable = False
        self._next_try = clock()
        self._error: BaseException | None = None

    @property
    def usable(self) -> bool:
        """Whether the last that is known of Redis is good."""
        return self._usable

    @property
    def due(self) -> bool:
        """Whether something would be tried now."""
        return self._usable or self._clock() >= self._next_try

    def status(self) -> RedisStatus:
        """How Redis is, as admins are told."""
        if self._usable:
            return RedisStatus("ok")
        left = max(self._next_try - self._clock(), 0.0)
        return RedisStatus("down", round(left, 1), remedy(self._error) if self._error else "")

    async def use(self, work: "Callable[[Redis], Awaitable[_Result]]") -> _Result | None:
        """What `work` gives; None where Redis is not usable, too busy, or fails.

        Takes no longer than twice the time-out: once for a connection to be free, once for `work`.
        """
        if not self._usable:
            return None
        try:
            async with asyncio.timeout(self._timeout):
                await self._slots.acquire()
        except TimeoutError:
            return None
        try:
            return await self._bounded(work, probing=False) if self._usable else None
        finally:
            self._slots.release()

    async def attempt(self, work: "Callable[[Redis], Awaitable[_Result]]") -> _Result | None:
        """The same for `work` that writes, which after the pause is tried to find out whether Redis is back."""
        if self._usable or not self.due:
            return await self.use(work)
        self._next_try = self._clock() + self._cooldown
        return await self._bounded(work, probing=True)

    async def close(self) -> None:
        """Closes every connection."""
        try:
            async with asyncio.timeout(self._timeout):
                await self._client.aclose()
        except Exception as error:  # border: a Redis that does not close cleanly keeps nothing from stopping
            log.debug("redis_not_closed error=%s", type(error).__name__)

    async def _bounded(self, work: "Callable[[Redis], Awaitable[_Result]]", *, probing: bool) -> _Result | None:
        task = asyncio.current_task()
        cancelled = task.cancelling() if task else 0
        result: _Result | None = None
        try:
            async with asyncio.timeout(self._timeout):
                result = await self._tried(work, again=not probing)
        except Exception as error:  # border: nothing that Redis does may cost an answer
            self._failed(error, probing=probing)
        else:
            if probing:
                self._recovered()
        if task and task.cancelling() > cancelled:
            raise asyncio.CancelledError  # what redis-py has lost
        return result

    async def _tried(self, work: "Callable[[Redis], Awaitable[_Result]]", *, again: bool) -> _Result:
        """`work`, tried `again` where the connection was closed: that of an idle one means no more than a restart."""
        from redis.exceptions import ConnectionError as Disconnected

        if again:
            with contextlib.suppress(Disconnected):
                return await work(self._client)
        await self._client.connection_pool.disconnect(inuse_connections=False)
        return await work(self._client)

    def _recovered(self) -> None:
        self._usable, self._error = True, None
        log.info("redis_up")

    def _failed(self, error: Exception, *, probing: bool) -> None:
        """Begins the pause. Of uses that fail together the first one counts."""
        if not (self._usable or probing):
            return
        first = self._error is None
        self._usable, self._error = False, error
        self._next_try = self._clock() + self._cooldown
        if first:
            log.warning("redis_down error=%s remedy=%s", type(error).__name__, remedy(error))


def _client(settings: RedisSettings) -> "Redis":
    """A client that tries each command once and waits no longer than it is told. Imports redis-py."""
    from redis.asyncio import ConnectionPool, Redis
    from redis.asyncio.retry import Retry
    from redis.backoff import NoBackoff

    pool = ConnectionPool.from_url(
        settings.url.get_secret_value(),
        socket_timeout=settings.timeout,
        socket_connect_timeout=settings.timeout,
        retry=Retry(NoBackoff(), 0),
        driver_info=None,
        protocol=2,
    )
    return Redis.from_pool(pool)


def remedy(error: BaseException) -> str:
    """What an admin can do about a failure, in one line without an address, a key or a text."""
    from redis import exceptions

    cases: tuple[tuple[tuple[type[BaseException], ...], str], ...] = (
        (
            (exceptions.AuthenticationError, exceptions.AuthenticationWrongNumberOfArgsError),
            "Redis 拒绝登录；请检查 memory.redis.url 中的用户名和密码",
        ),
        ((exceptions.NoPermissionError,), "Redis 用户权限不足；请允许它读写 memory.redis.prefix 开头的键"),
        ((exceptions.BusyLoadingError,), "Redis 正在加载数据；加载完会自动恢复"),
        ((exceptions.OutOfMemoryError,), "Redis 内存已满；请调大 maxmemory，或设 maxmemory-policy 为 allkeys-lru"),
        ((exceptions.ReadOnlyError,), "这个 Redis 是只读副本；请让 memory.redis.url 指向主节点"),
        (
            (exceptions.TimeoutError, TimeoutError),
            "Redis 没有按时回应；请检查它是否卡住、网络是否畅通，或调大 memory.redis.timeout",
        ),
        (
            (exceptions.ConnectionError, OSError),
            "连不上 Redis；请检查它是否在运行、连接数是否已满（maxclients），以及 memory.redis.url 的地址和端口",
        ),
        ((exceptions.ResponseError,), "Redis 拒绝了命令；请查看 Redis 的日志"),
    )
    for kinds, text in cases:
        if isinstance(error, kinds):
            return text
    return "与 Redis 的通信出错；请检查 memory.redis.url 指向的是 Redis"
