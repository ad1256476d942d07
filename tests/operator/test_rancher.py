"""What Rancher itself says of a guest cluster shows in the conditions of its floating IPs, with what heals it."""

import base64

from tests.harness.fleet import Fleet, build_fleet

A = "c-m-a"
A_VISIT = 700
"""Seconds in which every guest cluster is visited."""
SECRET = ("secrets", "fleet-default", "cluster-c-m-a-kubeconfig")


async def serve_one() -> Fleet:
    fleet = build_fleet(A)
    await fleet.start()
    fleet.ask(A)
    await fleet.pass_time(5)
    assert fleet.condition(A, "GuestConfigured")[0] == "True"
    return fleet


async def test_a_token_that_rancher_refuses_is_named_with_the_remedy() -> None:
    fleet = await serve_one()
    fleet.guests[A].token_refused = True
    await fleet.pass_time(A_VISIT)
    assert fleet.condition(A, "GuestConfigured") == ("False", "GuestUnreachable")
    assert fleet.message(A, "GuestConfigured") == (
        "Rancher does not accept the token in Secret fleet-default/cluster-c-m-a-kubeconfig. Delete the Secret, then "
        "change an annotation of Cluster fleet-default/cluster-c-m-a: Rancher creates the Secret again."
    )
    fleet.guests[A].token_refused = False
    await fleet.pass_time(A_VISIT)
    assert fleet.condition(A, "GuestConfigured")[0] == "True"


async def test_a_disconnected_agent_is_no_refused_token() -> None:
    fleet = await serve_one()
    fleet.guests[A].status = 500
    await fleet.pass_time(A_VISIT)
    assert fleet.condition(A, "GuestConfigured") == ("False", "GuestUnreachable")
    assert "token" not in fleet.message(A, "GuestConfigured")


async def test_a_server_url_that_ends_with_a_slash_is_named() -> None:
    fleet = await serve_one()
    secret = fleet.memory.objects[SECRET]
    text = base64.b64decode(secret["data"]["value"]).decode().replace("/k8s/clusters", "//k8s/clusters")
    value = base64.b64encode(text.encode()).decode()
    fleet.memory.put(SECRET, {**secret, "data": {"value": value}})
    await fleet.pass_time(A_VISIT)
    assert "server-url ends with a slash" in fleet.message(A, "GuestConfigured")
