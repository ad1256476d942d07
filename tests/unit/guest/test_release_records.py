"""Records of releases that are there: dropped at their very version, and made ours after a roll-back."""

from typing import Any

from fipop.guest.helm.charts import Role
from fipop.guest.helm.releases import LABEL_REVISION, build_labels
from tests.unit.guest.conftest import CHART, release_secret
from tests.unit.guest.turns import Turn, state


def secret(revision: int, made: int | None) -> dict[str, Any]:
    labels = {}
    if made is not None:
        labels = build_labels(Role.KUBE_VIP, "d", CHART, object_name="kube-vip", revision=made)
    return release_secret(revision=revision, labels=labels)


async def own(*secrets: dict[str, Any]) -> list[str]:
    turn = Turn(state())
    turn.client.secrets = list(secrets)
    await turn.turn.records.own_revision(state().latest)
    return turn.done


async def test_the_newest_revision_gets_its_own_number() -> None:
    """helm copies the labels of the revision that it goes back to, the number too."""
    (patched,) = await own(secret(3, 3), secret(4, 2))
    assert patched == f"patch sh.helm.release.v1.kube-vip.v4 {{'{LABEL_REVISION}': '4'}}"


async def test_what_is_ours_or_was_made_by_the_predecessor_is_not_written() -> None:
    assert await own(secret(4, 4)) == []
    assert await own(secret(4, None)) == []
    assert await own() == []


async def test_a_record_is_dropped_at_its_very_version() -> None:
    turn = Turn(state())
    await turn.turn.records.drop(state("pending-upgrade"))
    assert turn.done == ["delete sh.helm.release.v1.kube-vip.v3 uid-kube-vip-3 7"]
