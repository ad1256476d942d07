"""A range that names a Harvester cluster which Rancher does not have (K2)."""

from fipop.kube.resources import FLOATING_IP_RANGES
from tests.harness.small_operator import SmallOperator


def ready(operator: SmallOperator) -> tuple[str, str]:
    conditions = operator.memory.objects[FLOATING_IP_RANGES.plural, "", "pool"]["status"]["conditions"]
    found = next(each for each in conditions if each["type"] == "Ready")
    return found["status"], found["reason"]


async def test_a_range_made_before_its_harvester_is_imported_stays_ready_and_tells_until_then() -> None:
    operator = SmallOperator()
    operator.add_range(harvester="harvester-1")
    operator.add_guest("c-m-a")
    await operator.start()
    assert ready(operator) == ("True", "HarvesterNotFound")
    version = operator.memory.version
    await operator.pass_time(3600)
    assert operator.memory.version == version, "the same is not written again"
    operator.put_on_harvester("c-m-a", "harvester-1")
    await operator.settle()
    await operator.pass_time(5)
    assert ready(operator) == ("True", "Ready")
