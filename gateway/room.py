"""The room of a request: what is left of a model's context for window and question, and what a summary takes of it."""

from dataclasses import dataclass

from agents.agent import Agent
from agents.prompt import system_text
from gateway.snapshot import Snapshot
from memory.conversation import ConversationId
from memory.tokens import message_tokens


@dataclass(frozen=True, slots=True)
class Room:
    """The system message without a summary, and how many tokens window, question and summary may take beside it."""

    agent: Agent
    group: bool
    shared: bool
    speaker: str
    system: str
    tokens: int

    @classmethod
    def of(cls, snapshot: Snapshot, agent: Agent, conversation: ConversationId, speaker: str | None) -> "Room":
        """The room in the model this agent asks."""
        group = conversation.lane.group
        shared = conversation.lane.is_shared
        speaker = "" if shared else speaker or ""
        system = system_text(agent, group=group, shared=shared, speaker_name=speaker)
        settings = snapshot.model(agent).settings
        left = settings.context_tokens - settings.max_output_tokens - message_tokens(system)
        return cls(agent, group, shared, speaker, system, max(left, 0))

    def system_with(self, summary: str) -> str:
        """The system message with this summary."""
        return system_text(self.agent, group=self.group, shared=self.shared, speaker_name=self.speaker, summary=summary)

    def weigh(self, summary: str) -> int:
        """How many tokens a summary adds to the system message."""
        return message_tokens(self.system_with(summary)) - message_tokens(self.system)
