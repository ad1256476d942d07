"""What another operator is about to name is not given back, and nothing is named that another may be giving back."""

from fipop.api import names
from fipop.deadlines import UNDER_WAY_SECONDS
from fipop.errors import ApiUnreachableError
from fipop.kube.resources import FLOATING_IP_RESERVATIONS, FLOATING_IPS, Resource
from tests.harness.memory import Json
from tests.harness.small_operator import PromptClient, SmallOperator

A, X, Y = "c-m-a", "10.0.0.10", "10.0.0.12"


def stored(operator: SmallOperator, name: str) -> Json:
    found: Json = operator.memory.objects[FLOATING_IP_RESERVATIONS.plural, "", name]["metadata"]
    return found


async def serving() -> SmallOperator:
    operator = SmallOperator()
    operator.add_range()
    await operator.start()
    operator.ask(A)
    await operator.settle()
    assert operator.held() == {f"default.{X}": A}
    return operator


async def test_what_another_has_just_reserved_is_given_back_only_when_it_can_no_longer_be_named() -> None:
    """The other one knows already that a range of space "lab" is named: its status comes after its reservation."""
    operator = await serving()
    operator.reserve(X, A, space="lab", range_name="lab")
    await operator.settle()
    await operator.pass_time(UNDER_WAY_SECONDS - 2)
    assert operator.held() == {f"default.{X}": A, f"lab.{X}": A}
    await operator.pass_time(4)
    assert operator.held() == {f"default.{X}": A}


async def test_what_another_wrote_anew_meanwhile_waits_anew() -> None:
    operator = await serving()
    operator.reserve(X, A, space="lab", range_name="lab")
    await operator.pass_time(UNDER_WAY_SECONDS - 2)
    operator.reserve(X, A, space="lab", range_name="lab")
    await operator.settle()
    await operator.pass_time(UNDER_WAY_SECONDS - 2)
    assert f"lab.{X}" in operator.held()
    await operator.pass_time(4)
    assert operator.held() == {f"default.{X}": A}


async def test_what_this_operator_reserved_itself_is_given_back_at_once_when_its_move_is_done() -> None:
    operator = await serving()
    operator.ask_for_another(A, "10.0.0.12")
    await operator.settle()
    assert operator.held() == {"default.10.0.0.12": A}


async def test_what_is_found_reserved_is_written_anew_before_a_status_names_it() -> None:
    """Who has seen that nothing names it, and gives it back as it was then, fails."""
    operator = SmallOperator()
    operator.add_range()
    operator.ask(A)
    operator.reserve(X, A)
    found = stored(operator, f"default.{X}")["resourceVersion"]
    await operator.start()
    assert operator.held() == {f"default.{X}": A}
    assert stored(operator, f"default.{X}")["resourceVersion"] != found
    assert names.ANNOTATION_CONFIRMED in stored(operator, f"default.{X}")["annotations"]


async def test_what_the_status_names_is_not_written_anew() -> None:
    operator = SmallOperator()
    operator.add_range()
    operator.ask(A, has=X)
    operator.reserve(X, A)
    await operator.start()
    mark = stored(operator, f"default.{X}").get("annotations", {}).get(names.ANNOTATION_CONFIRMED)
    assert mark is None


async def test_a_status_is_of_the_spec_that_its_round_wrote_and_of_no_younger_one() -> None:
    """Another operator has moved it meanwhile as people asked, and gives back what this one was about to name."""
    operator = SmallOperator()
    operator.add_range()
    await operator.start()
    seen: list[Json] = []
    operator.memory.listeners.append(
        lambda change: (
            seen.append(change.obj) if change.plural == FLOATING_IPS.plural and change.obj else None
        )
    )

    def ask_for_another_once(verb: str) -> None:
        if verb == "patch":
            operator.client.on_commit = None
            operator.ask_for_another(A, "10.0.0.12")

    operator.client.on_commit = ask_for_another_once
    operator.ask(A)
    await operator.settle()
    assert operator.held() == {"default.10.0.0.12": A}
    assert [each["status"]["addresses"] for each in seen if "status" in each][:1] == [["10.0.0.12"]]


class CutOffClient(PromptClient):
    """The API server carries out the first release; its answer is lost, and its event is late."""

    is_cut_off = False

    async def replace(self, resource: Resource, body: Json, *, subresource: str | None = None) -> Json:
        if self.is_cut_off or "quarantinedUntil" not in body["spec"]:
            return await super().replace(resource, body, subresource=subresource)
        self.is_cut_off = True
        listeners, self._memory.listeners = self._memory.listeners, []
        await super().replace(resource, body, subresource=subresource)
        self._memory.listeners = listeners
        raise ApiUnreachableError(
            verb="replace", kind=resource.kind, name=body["metadata"]["name"], reason="ConnectionCut"
        )


async def release_without_an_answer() -> SmallOperator:
    """A has moved from X to Y moments after it got X, and its operator does not know that X was released."""
    operator = SmallOperator(client=CutOffClient)
    operator.add_range()
    operator.add_guest(A)
    await operator.start()
    await operator.pass_time(10)  # passes wait for a guest that is quite new
    operator.ask(A, X)
    await operator.settle()
    operator.ask_for_another(A, Y)
    await operator.settle()
    assert operator.quarantined() == {f"default.{X}"}
    assert operator.cache.reservations.get("", f"default.{X}").is_held
    return operator


async def test_a_status_never_names_an_address_whose_release_got_no_answer() -> None:
    """The operator had reserved the address itself moments before, and took that for the last word."""
    operator = await release_without_an_answer()
    operator.ask_for_another(A, X)
    await operator.settle()
    await operator.pass_time(2)
    assert operator.memory.judge.found == []
    assert operator.held() == {f"default.{X}": A}


async def test_a_guest_is_never_told_an_address_whose_release_got_no_answer() -> None:
    operator = await release_without_an_answer()
    await operator.visit(A)
    assert X not in operator.carried.config_maps.get(A, "")
    await operator.pass_time(60)
    await operator.visit(A)
    assert operator.carried.config_maps[A] == f"{Y}/32"
