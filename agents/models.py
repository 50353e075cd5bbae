"""All models of one configuration: each name's client, with its fallbacks; taken over when the configuration changes."""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, Self

from agents.breaker import Breaker, Pass
from agents.demo_model import DemoClient
from agents.listener import Listener
from agents.model import (
    BlankAnswer,
    Completion,
    ModelClient,
    ModelError,
    ModelMisconfigured,
    ModelRequest,
    ModelResting,
    ModelSettings,
    ModelTimeout,
    ModelUnavailable,
    NoPlace,
    OddAnswer,
)

_log = logging.getLogger("sanqiao.model")


class UnknownModel(LookupError):
    """No entry under `models` has this name; the message says where it is named (Chinese, for admins)."""


class OwnedClient(ModelClient, Protocol):
    """A client that `Models` made, and ends."""

    async def retire(self) -> None:
        """Lets go of connections as soon as no answer is under way; may be called again."""


def _client(settings: ModelSettings) -> OwnedClient:
    if settings.provider == "demo":
        return DemoClient(settings)
    # 0.5 s and 58 MB, which a gateway with the demo model alone is spared.
    from agents.openai_client import OpenAIClient

    return OpenAIClient(settings)


@dataclass(frozen=True, slots=True)
class ModelHealth:
    """How a model is: `ok`, a detail for admins (Chinese, no secret), and since when (unix seconds)."""

    ok: bool
    detail: str
    since: float


class WatchedClient:
    """A client that remembers how its last answers went, and is not asked while its model is dead.

    Not well after `FAILURES` in a row, or one wrong setting. Whether it is asked at all is the breaker's affair: it
    counts what asking again at once would only repeat, at the user's cost, so no odd answer, which comes quickly.
    """

    FAILURES = 3

    def __init__(
        self, client: OwnedClient, clock: Callable[[], float] = time.time, breaker: Breaker | None = None
    ) -> None:
        self._client = client
        self._clock = clock
        self._breaker = breaker or Breaker()
        self._failures = 0
        self.health = ModelHealth(True, "正常", clock())

    @property
    def settings(self) -> ModelSettings:
        """The entry this client was made from."""
        return self._client.settings

    async def complete(
        self, request: ModelRequest, on_text: Callable[[str], None], *, within: float | None = None
    ) -> Completion:
        """See ModelClient. Raises ModelResting, at once, while the breaker is open."""
        leave = self._breaker.ask()
        if leave is None:
            raise ModelResting(f"{self.settings.model}: not asked, it failed too often in a row")
        begun = asyncio.get_running_loop().time()
        try:
            completion = await self._client.complete(request, on_text, within=within)
        except ModelError as error:
            self._judge(error, leave, asyncio.get_running_loop().time() - begun)
            raise
        except BaseException:  # stopped, or a mistake of ours
            self._breaker.undecided(leave)
            raise
        self._breaker.succeeded(leave)
        self._well()
        return completion

    def _judge(self, error: ModelError, leave: Pass, seconds: float) -> None:
        """What a failure says of the model."""
        if isinstance(error, ModelTimeout) and error.heard_for is not None:
            seconds = error.heard_for
        if isinstance(error, NoPlace) or (isinstance(error, ModelTimeout) and seconds < self._patience):
            self._breaker.undecided(leave)  # it had no fair chance
        elif isinstance(error, (ModelUnavailable, ModelTimeout, ModelMisconfigured)):
            self._breaker.failed(leave)
        else:  # it answers, whatever it says
            self._breaker.succeeded(leave)
        if isinstance(error, (ModelUnavailable, ModelTimeout, ModelMisconfigured, OddAnswer)):
            self._unwell(error)

    @property
    def _patience(self) -> float:
        """A time-out after less than this many seconds was due to time used up before."""
        return 0.9 * min(self.settings.timeout, self.settings.total_timeout)

    def _unwell(self, error: ModelError) -> None:
        self._failures += 1
        if self._failures >= self.FAILURES or isinstance(error, ModelMisconfigured):
            if self.health.ok:
                _log.error("model.down model=%s error=%s reason=%r", self.settings.model, *_told(error))
            since = self._clock() if self.health.ok else self.health.since
            self.health = ModelHealth(False, f"{_REMEDIES[_kind(error)]}（{error}）", since)

    def _well(self) -> None:
        self._failures = 0
        if not self.health.ok:
            _log.info("model.up model=%s", self.settings.model)
            self.health = ModelHealth(True, "正常", self._clock())

    async def retire(self) -> None:
        """See OwnedClient."""
        await self._client.retire()


_REMEDIES = {
    ModelMisconfigured: "请检查 base-url、api-key 和 model",
    ModelTimeout: "没有及时回答；请检查模型服务，或加大 timeout",
    NoPlace: "太忙，等不到空位；请加大 max-concurrency",
    ModelUnavailable: "无法访问；请检查 base-url、网络和模型服务",
    BlankAnswer: "回答是空的；会思考的模型请加大 max-output-tokens",
    OddAnswer: "回答不是预期的形式；请检查 base-url 和 model",
}


def _kind(error: ModelError) -> type[ModelError]:
    return next(kind for kind in _REMEDIES if isinstance(error, kind))


class FallbackClient:
    """Asks the first model, and the next ones in order where one is of no use, within the first one's total time.

    The next is asked on ModelUnavailable, ModelTimeout, ModelMisconfigured and OddAnswer, while nothing of an answer
    was told. A refusal by a content filter or a request that is too long is no reason to ask another.
    """

    def __init__(self, clients: Sequence[ModelClient]) -> None:
        self._clients = tuple(clients)

    @property
    def settings(self) -> ModelSettings:
        """The first model's entry."""
        return self._clients[0].settings

    async def complete(
        self, request: ModelRequest, on_text: Callable[[str], None], *, within: float | None = None
    ) -> Completion:
        """See ModelClient. Raises what the last model asked raised."""
        loop = asyncio.get_running_loop()
        total = self.settings.total_timeout if within is None else min(within, self.settings.total_timeout)
        deadline = loop.time() + total
        listener = Listener(on_text)
        for client, following in zip(self._clients, self._clients[1:], strict=False):
            try:
                return await client.complete(request, listener, within=deadline - loop.time())
            except (ModelUnavailable, ModelTimeout, ModelMisconfigured, OddAnswer) as error:
                if listener.text or loop.time() >= deadline:
                    raise
                level = logging.DEBUG if isinstance(error, ModelResting) else logging.WARNING
                _log.log(level, "model.fallback to=%s error=%s reason=%r", following.settings.model, *_told(error))
        return await self._clients[-1].complete(request, listener, within=deadline - loop.time())


def _told(error: Exception) -> tuple[str, str]:
    return type(error).__name__, str(error)


class Models:
    """The models of one configuration, never changed in place.

    Making it imports the SDK and reads certificates, if any model needs them: before the event loop runs, or in a
    thread (`renew` does so).
    """

    def __init__(self, settings: Mapping[str, ModelSettings], kept: Mapping[str, WatchedClient] | None = None) -> None:
        """`kept` are clients to be used for names whose settings are unchanged. Raises UnknownModel."""
        kept = kept or {}
        for name, entry in settings.items():
            for other in entry.fallback:
                if other not in settings:
                    raise UnknownModel(
                        f"models.{name}.fallback: 没有名为 {other} 的模型；请在 models 里添加或从这里去掉"
                    )
        self._own = {
            name: kept[name] if name in kept and kept[name].settings == entry else WatchedClient(_client(entry))
            for name, entry in settings.items()
        }
        self._asked = {name: self._with_fallbacks(name, entry) for name, entry in settings.items()}

    def _with_fallbacks(self, name: str, entry: ModelSettings) -> ModelClient:
        chain = [name, *(other for other in dict.fromkeys(entry.fallback) if other != name)]
        return FallbackClient([self._own[each] for each in chain]) if len(chain) > 1 else self._own[name]

    def client(self, name: str) -> ModelClient:
        """The client of this name; ``summary`` without an entry of its own is ``main``. Raises UnknownModel."""
        if name == "summary" and name not in self._asked:
            name = "main"
        try:
            return self._asked[name]
        except KeyError:
            raise UnknownModel(f"models: 没有名为 {name} 的模型") from None

    def health(self) -> dict[str, ModelHealth]:
        """How each model is, as far as it was asked."""
        return {name: client.health for name, client in self._own.items()}

    def __contains__(self, name: object) -> bool:
        return name in self._asked

    async def renew(self, settings: Mapping[str, ModelSettings]) -> Self:
        """The models of a changed configuration. Unchanged ones keep their client, with its connections and places.

        The others' clients end as soon as no answer of theirs is under way; whoever still holds one may go on asking
        it. Raises UnknownModel, and then nothing has changed.
        """
        made = await asyncio.to_thread(type(self), settings, self._own)
        kept = set(map(id, made._own.values()))
        for client in self._own.values():
            if id(client) not in kept:
                try:
                    await client.retire()
                except Exception as error:  # border: an old connection keeps nobody from the new models
                    _log.warning("model.not_retired model=%s error=%s", client.settings.model, type(error).__name__)
        return made

    async def close(self) -> None:
        """Ends all clients as soon as no answer is under way."""
        for client in self._own.values():
            await client.retire()
