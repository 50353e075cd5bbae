"""The room of a request: what is left of a model's context for window and question, and what a summary takes of it."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from agents.agent import Agent
from agents.prompt import system_text
from agents.tool_loop import spec_tokens
from agents.tools.tool import Tool
from gateway.snapshot import Snapshot
from memory.conversation import ConversationId
from memory.errors import StoreError
from memory.filters import FilterFailed
from memory.masking import Masking
from memory.memory import Memory
from memory.profile import Profile
from memory.tokens import message_tokens

log = logging.getLogger("sanqiao.answering")


@dataclass(frozen=True, slots=True)
class Room:
    """The system message without a summary, and how many tokens window, question and summary may take beside it.

    `profile` is the person's, as this agent may see it: empty in groups. `tools` are those offered here.
    """

    agent: Agent
    group: bool
    shared: bool
    speaker: str
    system: str
    tokens: int
    profile: Mapping[str, str] = field(default_factory=dict)
    tools: Sequence[Tool] = ()

    @classmethod
    def of(
        cls,
        snapshot: Snapshot,
        agent: Agent,
        conversation: ConversationId,
        speaker: str | None,
        profile: Mapping[str, str] | None = None,
    ) -> "Room":
        """The room in the model this agent asks."""
        group = conversation.lane.group
        shared = conversation.lane.is_shared
        speaker = "" if shared else speaker or ""
        profile = {} if group or profile is None else profile
        tools = snapshot.tools(agent, group=group)
        system = system_text(
            agent, group=group, shared=shared, tools=bool(tools), speaker_name=speaker, profile=profile
        )
        settings = snapshot.model(agent).settings
        left = settings.context_tokens - settings.max_output_tokens - message_tokens(system) - spec_tokens(tools)
        return cls(agent, group, shared, speaker, system, max(left, 0), profile, tools)

    def system_with(self, summary: str) -> str:
        """The system message with this summary."""
        return system_text(
            self.agent,
            group=self.group,
            shared=self.shared,
            tools=bool(self.tools),
            speaker_name=self.speaker,
            summary=summary,
            profile=self.profile,
        )

    def weigh(self, summary: str) -> int:
        """How many tokens a summary adds to the system message."""
        return message_tokens(self.system_with(summary)) - message_tokens(self.system)


async def room_of(
    snapshot: Snapshot,
    agent: Agent,
    conversation: ConversationId,
    speaker: str | None,
    memory: Memory,
    *,
    known: Profile | None = None,
    again: bool = False,
) -> Room:
    """The room, with the person's profile in direct chats; without it where it can't be read or filtered.

    `known` is the profile, where it was read a moment ago. `again`: the turn's room was made before, and what is wrong
    was logged then.
    """
    profile: Mapping[str, str] = {}
    if not conversation.lane.group:
        try:
            fields = known if known is not None else await memory.profile(conversation.lane.user)
            profile = await _shown(fields, snapshot.masking(agent))
        except (StoreError, FilterFailed) as error:
            level = logging.DEBUG if again else logging.ERROR
            log.log(level, "profile left out user=%s error=%s", conversation.lane.user, error)
    return Room.of(snapshot, agent, conversation, speaker, profile)


async def _shown(fields: Profile, masking: Masking) -> dict[str, str]:
    """The fields as this agent may see them: what an admin wrote was never masked."""
    shown: dict[str, str] = {}
    for name, values in fields.items():
        kept_name, kept = await masking.apply(name), await masking.apply("、".join(values))
        if kept_name and kept:
            shown[kept_name] = kept
    return shown
