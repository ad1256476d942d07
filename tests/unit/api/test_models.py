"""Our objects as values."""

from fipop.api.models import Owner
from tests.harness.objects import floating_ip, reservation


def test_an_object_is_known_by_its_uid_and_its_name_by_its_key() -> None:
    first, again = floating_ip("web", uid="a"), floating_ip("web", uid="b")
    assert first.meta.key == again.meta.key == ("c-m-1", "web")
    assert first.uid != again.uid


def test_an_owner_is_a_floating_ip_of_a_name() -> None:
    owner = reservation("10.0.0.1").owner
    assert owner.key == ("c-m-1", "web")
    assert owner != Owner(namespace="c-m-1", name="web", uid="another")
