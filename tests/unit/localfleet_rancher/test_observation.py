"""What the demo's checks are built on."""

import base64
import gzip
import json

from localfleet.observation import Sample, decode_release, find_condition, parse_metrics


def test_a_scrape_is_read_to_the_letter() -> None:
    text = (
        "# HELP events Events.\n"
        "# TYPE events counter\n"
        'events{guest="a b",event="say \\"hi\\""} 3.0\n'
        "fipop_leader 1.0\n"
    )
    assert parse_metrics(text) == (
        Sample(name="events", labels={"guest": "a b", "event": 'say \\"hi\\"'}, value=3.0),
        Sample(name="fipop_leader", labels={}, value=1.0),
    )


def test_a_release_is_decoded_as_helm_packs_it() -> None:
    release = {
        "name": "kube-vip",
        "namespace": "kube-system",
        "version": 2,
        "info": {"status": "deployed"},
        "chart": {"metadata": {"name": "kube-vip", "version": "0.11.0", "appVersion": "v1.2.3"}},
    }
    packed = base64.b64encode(base64.b64encode(gzip.compress(json.dumps(release).encode()))).decode()
    decoded = decode_release({"data": {"release": packed}})
    assert (decoded.chart, decoded.revision, decoded.status) == ("kube-vip-0.11.0", 2, "deployed")


def test_an_object_without_conditions_has_an_empty_one() -> None:
    assert find_condition(None, "Ready") == {}
    assert find_condition({"status": {"conditions": [{"type": "Ready", "status": "True"}]}}, "Ready")[
        "status"
    ]
