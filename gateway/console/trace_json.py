"""Traces as JSON, for the console's API."""

from dataclasses import asdict
from typing import Any

from gateway.sent_request import SentRequest
from gateway.tracing.trace import Rejected, Step, Trace, TracePage


def page_json(page: TracePage) -> dict[str, Any]:
    """The form of ``GET /api/traces``."""
    return {"traces": [trace_json(each) for each in page.traces], "before": page.before}


def trace_json(trace: Trace) -> dict[str, Any]:
    """One trace; with its steps where it has any."""
    shown = asdict(trace)
    steps = [_step(each) for each in trace.steps]
    return {**shown, "steps": steps} if steps else {key: value for key, value in shown.items() if key != "steps"}


def sent_json(sent: SentRequest) -> dict[str, Any]:
    """The form of ``GET /api/traces/{id}/request``."""
    return {"at": sent.at, "exact": sent.exact, "missing": list(sent.missing), "body": sent.body()}


def rejected_json(rejected: Rejected) -> dict[str, Any]:
    """One minute's requests that were turned away unread."""
    return asdict(rejected)


def _step(step: Step) -> dict[str, Any]:
    shown: dict[str, Any] = {"kind": step.kind, "at": step.at, **step.facts}
    if step.window is not None:
        shown["window"] = asdict(step.window)
    return shown
