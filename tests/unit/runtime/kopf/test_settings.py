"""How kopf is run here: it watches, writes nothing, and does not end the process."""

import logging

from fipop.runtime.kopf.settings import WatchTimes, build_kopf_settings, quieten_kopf

TIMES = WatchTimes()


def test_kopf_writes_nothing_looks_for_no_peers_and_kills_nobody() -> None:
    found = build_kopf_settings(TIMES, (1.0,))
    assert not found.posting.enabled
    assert found.peering.standalone
    assert found.scanning.disabled
    assert found.process.ultimate_exiting_timeout is None
    assert "unused" in str(found.persistence.finalizer)


def test_objects_are_neither_copied_nor_read_for_progress() -> None:
    found = build_kopf_settings(TIMES, (1.0,))
    body = {
        "metadata": {"annotations": {"kopf.zalando.org/last-handled-configuration": "{}"}},
        "spec": {"a": 1},
    }
    assert found.persistence.diffbase_storage.build(body=body) == {}  # type: ignore[arg-type]
    assert found.persistence.diffbase_storage.fetch(body=body) is None  # type: ignore[arg-type]
    progress = found.persistence.progress_storage
    assert progress.fetch(key="x", body=body) is None  # type: ignore[arg-type]
    progress.store(key="x", record={}, body=body, patch={})  # type: ignore[arg-type]
    progress.purge(key="x", body=body, patch={})  # type: ignore[arg-type]
    progress.touch(body=body, patch={}, value="x")  # type: ignore[arg-type]
    assert progress.clear(essence=body) == body  # type: ignore[arg-type]


def test_a_watch_ends_by_the_server_before_the_client_gives_it_up() -> None:
    found = build_kopf_settings(TIMES, (1.0,))
    assert found.watching.server_timeout < (found.watching.client_timeout or 0)
    assert (found.watching.client_timeout or 0) < (found.watching.inactivity_timeout or 0)


def test_kopfs_own_words_are_out_of_the_log() -> None:
    quieten_kopf()
    assert not logging.getLogger("kopf.objects").isEnabledFor(logging.INFO)
    assert not logging.getLogger("kopf._cogs").isEnabledFor(logging.ERROR)
