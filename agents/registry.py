"""The agents of one configuration: found by name or by a name they once had."""

from collections.abc import Iterator, Mapping

from agents.agent import Agent, AgentSettings


class UnknownAgent(LookupError):
    """No agent has this name or alias."""


class AgentConflict(ValueError):
    """The configured agents do not go together; the message names the agent and the remedy (Chinese, for admins)."""


class Agents:
    """All agents of one configuration, never changed in place: a changed configuration makes a new `Agents`."""

    def __init__(self, settings: Mapping[str, AgentSettings], default: str) -> None:
        """`default` may be a name or an alias. Raises AgentConflict."""
        self._agents = {name: Agent(name, each) for name, each in settings.items()}
        self._names = {name: name for name in self._agents}
        for agent in self._agents.values():
            for alias in agent.settings.aliases:
                holder = self._names.setdefault(alias, agent.name)
                if holder != agent.name:
                    raise AgentConflict(f"agents/{agent.name}.yaml: aliases: {alias} 已属于 {holder}；请只在一处保留")
        if default not in self._names:
            raise AgentConflict(f"agent.default: 没有名为 {default} 的智能体；请写 config/agents/ 中某个文件的名字")
        self._default = self._agents[self._names[default]]

    def get(self, name: str) -> Agent:
        """The agent of this name or alias; case and blanks around it do not matter. Raises UnknownAgent."""
        try:
            return self._agents[self._names[name.strip().lower()]]
        except KeyError:
            raise UnknownAgent(name) from None

    @property
    def default(self) -> Agent:
        """The agent that answers when nothing else decides."""
        return self._default

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name.strip().lower() in self._names

    def __iter__(self) -> Iterator[Agent]:
        """The agents in the order of their names."""
        return iter(sorted(self._agents.values(), key=lambda agent: agent.name))

    def __len__(self) -> int:
        return len(self._agents)
