"""How kopf is run here."""

import logging
from random import Random

import kopf

from fipop.runtime.kopf.operator import build_settings


def test_kopf_writes_nothing_looks_for_no_kinds_and_kills_nobody() -> None:
    settings = build_settings(Random(1))
    assert not settings.posting.enabled
    assert settings.scanning.disabled
    assert settings.process.ultimate_exiting_timeout is None
    assert not settings.persistence.finalizer.startswith("kopf")


def test_objects_are_neither_copied_nor_read_for_progress() -> None:
    persistence = build_settings(Random(1)).persistence
    body = kopf.Body({"metadata": {"annotations": {"kopf.zalando.org/last-handled-configuration": "{}"}}})
    assert persistence.diffbase_storage.build(body=body) == {}
    assert persistence.diffbase_storage.fetch(body=body) is None
    assert persistence.progress_storage.fetch(key="x", body=body) is None


def test_a_watch_ends_by_the_server_before_the_client_gives_it_up() -> None:
    watching = build_settings(Random(1)).watching
    assert watching.server_timeout is not None
    assert watching.client_timeout is not None
    assert watching.server_timeout < 0.9 * watching.client_timeout < watching.inactivity_timeout
    assert watching.inactivity_timeout != watching.client_timeout


def test_kopfs_own_words_are_out_of_the_log() -> None:
    build_settings(Random(1))
    for name in ("kopf.objects", "kopf.activities.authentication", "kopf._core.reactor.running"):
        assert not logging.getLogger(name).isEnabledFor(logging.ERROR)
