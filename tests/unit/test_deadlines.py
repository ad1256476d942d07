"""The order of the durations is asserted: whoever changes one learns what stood on it."""

import re
from pathlib import Path

import pytest

from fipop import deadlines

ROOT = Path(__file__).parents[2]
SOURCE = Path(deadlines.__file__).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("LEASE_RENEW_SECONDS", "12.0"),
        ("LEASE_RENEW_DEADLINE_SECONDS", "13.0"),
        ("HELM_TERMINATION_SECONDS", "7.0"),
        ("FOREIGN_LEASE_SECONDS", "15.0"),
        ("PERMIT_SECONDS", "11.0"),
        ("GUEST_WRITE_SECONDS", "14.0"),
        ("GUEST_WRITE_SECONDS", "9.0"),
        ("MIN_QUARANTINE_SECONDS", "75"),
        ("HELM_IDLE_SECONDS", "300.0"),
        ("STOP_SECONDS", "31.0"),
    ],
)
def test_a_duration_that_breaks_the_order_is_refused_at_import(name: str, value: str) -> None:
    changed, count = re.subn(rf"^{name} = .*$", f"{name} = {value}", SOURCE, flags=re.MULTILINE)
    assert count == 1
    with pytest.raises(AssertionError):
        exec(compile(changed, "deadlines.py", "exec"), {})


def test_the_chart_gives_the_pod_the_time_that_a_stop_may_take() -> None:
    template = (ROOT / "templates" / "deployment.yaml").read_text(encoding="utf-8")
    assert f"terminationGracePeriodSeconds: {deadlines.POD_GRACE_SECONDS}\n" in template
