"""Agents that were renamed: what was said to them under an older name stays theirs."""

import logging

from agents.agent import Agent
from memory.conversation import ConversationId, LaneKey
from memory.errors import StoreError
from memory.memory import Memory

log = logging.getLogger("sanqiao.renamed")


async def conversation_with(memory: Memory, lane: LaneKey, agent: Agent) -> ConversationId:
    """The lane's conversation with an agent: under one of its `aliases` where only that has a file."""
    conversation = lane.with_agent(agent.name)
    if not agent.settings.aliases:
        return conversation
    try:
        existing = {each.agent: each for each in await memory.files_of(lane)}
    except StoreError as error:  # the answer does not wait for the disk
        log.error("aliases not looked up lane=%s reason=%s", lane, error)
        return conversation
    names = (agent.name, *agent.settings.aliases)
    return next((existing[name] for name in names if name in existing), conversation)
