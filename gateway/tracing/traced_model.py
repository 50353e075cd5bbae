"""A model client that notes each request for the trace: how long until the first word and the last, tokens, errors."""

import asyncio
from collections.abc import Callable
from functools import partial

from agents.model import Completion, ModelClient, ModelError, ModelRequest, ModelSettings
from gateway.tracing.trace import Kind


class TracedModel:
    """`client`, with a step told to `note` for each request; one that was cancelled is noted as ``stopped``."""

    def __init__(self, client: ModelClient, note: Callable[..., None]) -> None:
        self._client = client
        self._note = partial(note, Kind.MODEL)

    @property
    def settings(self) -> ModelSettings:
        """The entry the client was made from."""
        return self._client.settings

    async def complete(
        self, request: ModelRequest, on_text: Callable[[str], None], *, within: float | None = None
    ) -> Completion:
        """See ModelClient."""
        now = asyncio.get_running_loop().time
        started, first = now(), -1.0

        def heard(piece: str) -> None:
            nonlocal first
            if first < 0:
                first = now()
            on_text(piece)

        note = partial(self._note, messages=len(request.messages), tools=len(request.tools))
        try:
            completion = await self._client.complete(request, heard, within=within)
        except ModelError as error:
            note(model=self._name, seconds=_since(started, now()), error=type(error).__name__, reason=str(error))
            raise
        except asyncio.CancelledError:
            note(model=self._name, seconds=_since(started, now()), error="stopped")
            raise
        usage = completion.usage
        note(
            model=completion.model,
            seconds=_since(started, now()),
            first_token=_since(started, first) if first >= 0 else None,
            prompt_tokens=usage.prompt_tokens if usage else None,
            completion_tokens=usage.completion_tokens if usage else None,
            finish=completion.finish,
        )
        return completion

    @property
    def _name(self) -> str:
        settings = self._client.settings
        return "demo" if settings.provider == "demo" else settings.model


def _since(started: float, then: float) -> float:
    return round(then - started, 3)
