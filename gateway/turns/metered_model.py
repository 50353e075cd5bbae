"""A model client that counts what its answers take: as the model's server tells, by estimate where it tells nothing."""

import asyncio
from collections.abc import Callable

from agents.model import BlankAnswer, ChatMessage, Completion, ModelClient, ModelError, ModelRequest, ModelSettings
from gateway.storage.token_use import Meter
from memory.tokens import call_tokens, estimate, message_tokens


class MeteredModel:
    """`client`, with each request counted in `meter`.

    One that was cancelled counts by estimate; one that failed too, where the model had begun to answer.
    """

    def __init__(self, client: ModelClient, meter: Meter) -> None:
        self._client = client
        self._meter = meter

    @property
    def settings(self) -> ModelSettings:
        """The entry the client was made from."""
        return self._client.settings

    async def complete(
        self, request: ModelRequest, on_text: Callable[[str], None], *, within: float | None = None
    ) -> Completion:
        """See ModelClient."""
        heard: list[str] = []

        def hear(piece: str) -> None:
            heard.append(piece)
            on_text(piece)

        try:
            completion = await self._client.complete(request, hear, within=within)
        except ModelError as error:
            if heard or isinstance(error, BlankAnswer):
                self._meter.add(request_tokens(request), estimate("".join(heard)))
            raise
        except asyncio.CancelledError:
            self._meter.add(request_tokens(request), estimate("".join(heard)))
            raise
        if completion.usage:
            self._meter.add(completion.usage.prompt_tokens, completion.usage.completion_tokens)
        else:
            answer = ChatMessage("assistant", completion.text, completion.tool_calls)
            self._meter.add(request_tokens(request), _tokens(answer))
        return completion


def request_tokens(request: ModelRequest) -> int:
    """About how many tokens a request has, its tools too."""
    tools = sum(estimate(tool.name + tool.description + tool.parameters) for tool in request.tools)
    return sum(map(_tokens, request.messages)) + tools


def _tokens(message: ChatMessage) -> int:
    return message_tokens(message.content) + sum(map(call_tokens, message.tool_calls))
