"""One message costs the same however long its conversation is: `bench_memory` with bounds for a busy machine."""

from pathlib import Path

from tests.bench.bench_memory import READ, Case, measured


def told(case: Case) -> str:
    return f"{case.messages:,} messages, {case.acknowledged:.0%} acknowledged: {case.step * 1000:.2f} ms, {case.read} bytes"


async def test_a_long_past_costs_nothing(tmp_path: Path) -> None:
    figures = await measured(tmp_path, (20, 100_000), rounds=60)
    print("; ".join(map(told, figures.cases)))
    assert figures.ratio(0.0) < 4
    assert figures.ratio(0.9) < 4
    assert max(case.read for case in figures.cases) <= READ
