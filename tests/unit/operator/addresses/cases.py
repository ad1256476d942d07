"""Facts that hypothesis chooses: what is held, what the spec asks for, what the status names."""

from typing import Any

from hypothesis import strategies as st

from fipop.api.models import Reservation
from fipop.operator.addresses.values import Facts
from tests.harness.objects import floating_ip, held_by, reservation
from tests.unit.operator.addresses.facts import facts_of


def mine(address: str, **fields: Any) -> Reservation:
    return reservation(address, cluster="demo", **fields)


hosts = st.integers(1, 60)
reservations_held = st.lists(
    st.builds(
        lambda host, is_v6, space, range_name, requested: mine(
            f"fd00::{host:x}" if is_v6 else f"10.0.0.{host}",
            space=space,
            range_name=range_name,
            requested=requested,
        ),
        hosts,
        st.booleans(),
        st.sampled_from(["default", "default", "lab"]),
        st.sampled_from(["pool", "other"]),
        st.sampled_from(["static", "dynamic"]),
    ),
    unique_by=lambda each: each.name,
    max_size=5,
)
specs = st.fixed_dictionaries(
    {},
    optional={
        "ipaddress": st.sampled_from(["10.0.0.5", "fd00::5", "10.0.0.59,fd00::5", "fd00::5,10.0.0.5", ""]),
        "ipFamilyPolicy": st.sampled_from(["SingleStack", "PreferDualStack", "RequireDualStack"]),
        "ipFamilies": st.sampled_from([["IPv4"], ["IPv6"], ["IPv6", "IPv4"]]),
    },
)
named = st.lists(st.sampled_from(["10.0.0.5", "fd00::5", "10.0.0.7"]), max_size=1)


def build_facts(own: list[Reservation], spec: dict[str, Any], status: list[str], **fields: Any) -> Facts:
    return facts_of(floating_ip(status=held_by(status) if status else None, **spec), *own, **fields)
