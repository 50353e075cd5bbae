"""The tools that come with the product."""

from agents.tools.current_time import CURRENT_TIME
from agents.tools.profile import READ_PROFILE, UPDATE_PROFILE
from agents.tools.recall import RECALL
from agents.tools.search_jobs import SEARCH_JOBS
from agents.tools.tool import Tool

BUILT_IN: dict[str, Tool] = {
    tool.name: tool for tool in (SEARCH_JOBS, UPDATE_PROFILE, READ_PROFILE, RECALL, CURRENT_TIME)
}
"""By name."""
