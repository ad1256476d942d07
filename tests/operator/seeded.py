"""Seeded faults: broken protocols, as edits of the source, each of which the simulation finds within some lives.

One harms nobody in hundreds of lives, as other rules stand before it: a test finds that one.

    python -m tests.operator.seeded [--lives 200] [--seed 1] [FAULT…]

Each fault is applied to a copy of the source; the simulation runs there until a life is wrong. A fault whose text is
no longer in the source fails at once: whoever changes the protocol changes the fault.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
COPIED = ("fipop", "localfleet", "crds", "tests/harness", "tests/operator")
ACTS = 100
"""Of each life: a fault that needs two things at once shows late."""
ADDRESSES = "fipop/addresses"
HANDOVER = "test_handover.py::test_"


@dataclass(frozen=True, slots=True)
class Fault:
    """One broken protocol: in a file, a text that is there once, and what stands there instead."""

    name: str
    file: str
    old: str
    new: str
    options: tuple[str, ...] = ()
    """Of the lives that find it."""
    test: str = ""
    """Finds it in place of lives: a test of tests/operator."""

    def is_current(self) -> bool:
        """Return whether its text stands in the source, once."""
        return (ROOT / self.file).read_text(encoding="utf-8").count(self.old) == 1


FAULTS = (
    Fault(
        "time-alone-ends-a-quarantine",
        f"{ADDRESSES}/quarantine.py",
        "again = self._check_reports(reservation)",
        "again = None",
    ),
    Fault(
        "an-old-report-ends-a-quarantine",
        f"{ADDRESSES}/inventory.py",
        "return until is not None and read_since is not None and read_since >= until",
        "return until is not None and read_since is not None",
    ),
    Fault(
        "anyone-takes",
        f"{ADDRESSES}/holders.py",
        "    if known.is_held or former.key == owner.key:\n        return former.key == owner.key\n",
        "    return True\n",
    ),
    Fault(
        "anyone-takes-from-quarantine",
        f"{ADDRESSES}/holders.py",
        "    if former.namespace == owner.namespace:\n        return claim.requested is Requested.STATIC\n",
        "    return True\n",
    ),
    Fault(
        "reports-do-not-count",
        "fipop/addresses/reports.py",
        "uses.counted = {space: frozenset(some) for space, some in counted.items()}",
        "uses.counted = {}",
    ),
    Fault(
        "no-live-read-before-a-guest-write",
        f"{ADDRESSES}/reservations.py",
        "live = await self.read(each.name)",
        "live = each",
        test="test_two_writers.py::test_a_guest_cluster_is_never_told_an_address_that_went_to_another_unseen",
    ),
    Fault(
        "a-status-names-what-was-not-claimed",
        f"{ADDRESSES}/reconciler.py",
        "for claim in (*decision.had, *decision.holds):",
        "for claim in decision.had:",
    ),
    Fault(
        "a-claim-without-the-version",
        f"{ADDRESSES}/reservations.py",
        "answer = await self.client.replace(FLOATING_IP_RESERVATIONS, build_body(wanted))",
        "body = build_body(wanted)\n"
        "            live = await self.client.get(FLOATING_IP_RESERVATIONS, wanted.name)\n"
        "            if live is not None:  # the API server takes no replace without a version\n"
        '                body["metadata"]["resourceVersion"] = live["metadata"]["resourceVersion"]\n'
        '                body["metadata"]["uid"] = live["metadata"]["uid"]\n'
        "            answer = await self.client.replace(FLOATING_IP_RESERVATIONS, body)",
    ),
    # A failed list in place of an empty one does no harm by itself, as this read stands behind it.
    Fault(
        "the-cache-alone-says-that-an-owner-is-gone",
        f"{ADDRESSES}/quarantine.py",
        "if self.inventory.floating_ips.get(*owner.key) is not None or await self._find_owner(reservation):",
        "if self.inventory.floating_ips.get(*owner.key) is not None:",
    ),
    Fault(
        "the-gate-is-always-open",
        "fipop/addresses/gate.py",
        "    is_open: bool = False\n",
        "    is_open: bool = True\n",
    ),
    Fault(
        "an-answer-of-rancher-is-a-reading",
        f"{ADDRESSES}/gate.py",
        "UNREADABLE_SECONDS = 600.0",
        "UNREADABLE_SECONDS = 60.0",
        test="test_start.py::test_a_rancher_that_starts_later_than_fipop_has_its_guest_clusters_read_first",
    ),
    Fault(
        "a-new-leader-forgets-what-is-used-by-hand",
        "fipop/operator/manager.py",
        "        self.inventory.recall_reports(self.inventory.exists)\n",
        "",
        ("--handover",),
    ),
    Fault(
        "a-new-leader-waits-for-nobody",
        f"{ADDRESSES}/handover.py",
        "        if self.found is None or guest_id in self.found.waits:\n            return False\n",
        "        return True\n",
        ("--handover",),
    ),
    Fault(
        "whom-the-last-leader-waited-for-is-known",
        f"{ADDRESSES}/handover.py",
        "if self.found is None or guest_id in self.found.waits:",
        "if self.found is None:",
        test=f"{HANDOVER}a_guest_cluster_for_which_the_last_leader_waited_is_waited_for",
    ),
    Fault(
        "who-connected-in-the-gap-is-known",
        f"{ADDRESSES}/handover.py",
        "return since is not None and since < at - CLOCKS and all(each.created < at for each in clusters)",
        "return True",
        test=f"{HANDOVER}a_guest_cluster_that_came_in_the_gap_is_waited_for",
    ),
    Fault(
        "the-clocks-of-rancher-and-the-api-server-agree",
        f"{ADDRESSES}/handover.py",
        "since < at - CLOCKS",
        "since < at",
        test=f"{HANDOVER}a_guest_cluster_that_connected_in_the_gap_by_a_clock_that_is_behind_is_waited_for",
    ),
    Fault(
        "one-that-is-imported-in-the-gap-is-new",
        f"{ADDRESSES}/handover.py",
        "each.created > at and not each.is_imported",
        "each.created > at",
        test=f"{HANDOVER}a_guest_cluster_that_came_in_the_gap_is_waited_for",
    ),
    Fault(
        "one-that-is-new-since-is-waited-for",
        f"{ADDRESSES}/handover.py",
        "        if all(each.created > at and not each.is_imported for each in clusters):\n            return True\n",
        "",
        test=f"{HANDOVER}a_guest_cluster_that_is_new_in_the_gap_is_not_waited_for",
    ),
    Fault(
        "a-range-may-change-in-the-gap",
        f"{ADDRESSES}/handover.py",
        "return note.ranges == digest_ranges(ranges) and all(map(tells_all, ranges))",
        "return all(map(tells_all, ranges))",
        test=f"{HANDOVER}a_range_that_serves_another_harvester_cluster_since_the_gap_has_every_guest_cluster_read",
    ),
    Fault(
        "a-range-may-change-before-all-were-tried",
        f"{ADDRESSES}/gate.py",
        "self._is_outdated = bool(self.untried)",
        "self._is_outdated = False",
        test=f"{HANDOVER}a_range_that_changes_before_a_new_leader_tried_each_guest_cluster_assigns_nothing_until_then",
    ),
    Fault(
        "a-status-may-leave-something-out",
        f"{ADDRESSES}/handover.py",
        "return is_current and len(status.reported) == (status.reported_count or 0)",
        "return is_current",
        test=f"{HANDOVER}a_status_that_leaves_something_out_is_relied_on_by_no_leader",
    ),
    Fault(
        "a-status-may-be-unwritten",
        f"{ADDRESSES}/ranges.py",
        "            self.note = None\n            raise problem\n",
        "            self.note = note\n            raise problem\n",
        test=f"{HANDOVER}a_status_that_cannot_be_written_is_relied_on_by_no_leader",
    ),
    Fault(
        "what-waits-to-be-written-stands-in-a-status",
        f"{ADDRESSES}/ranges.py",
        "if has_tried_all and seconds == RECOUNT_SECONDS:",
        "if has_tried_all:",
        test=f"{HANDOVER}what_waits_to_be_written_is_relied_on_by_no_leader",
    ),
    Fault(
        "what-is-known-changes-with-each-count",
        f"{ADDRESSES}/handover.py",
        "NOTE_SECONDS = 30.0",
        "NOTE_SECONDS = 0.0",
        test=f"{HANDOVER}what_is_known_changes_every_thirty_seconds_in_a_busy_fleet_too",
    ),
    Fault(
        "any-number-of-guest-clusters-is-waited-for",
        f"{ADDRESSES}/handover.py",
        '        if len(note.waits) > MAX_WAITS:\n            return ""\n',
        "",
        test=f"{HANDOVER}with_more_than_sixteen_guest_clusters_to_wait_for_all_are_waited_for",
    ),
    Fault(
        "old-knowledge-counts",
        f"{ADDRESSES}/handover.py",
        "return -CLOCKS <= self.now() - note.at <= MAX_AGE",
        "return True",
        test=f"{HANDOVER}what_was_known_five_minutes_ago_is_read_again",
    ),
    Fault(
        "a-restart-makes-old-knowledge-young",
        f"{ADDRESSES}/gate.py",
        "return self.is_open and not self.untried",
        "return self.is_open",
        test=f"{HANDOVER}a_series_of_restarts_does_not_make_old_knowledge_young",
    ),
    Fault(
        "a-try-without-an-answer-makes-old-knowledge-young",
        f"{ADDRESSES}/gate.py",
        " and self._read_at is not None",
        "",
        test=f"{HANDOVER}a_series_of_restarts_while_rancher_is_away_does_not_make_old_knowledge_young",
    ),
    Fault(
        "a-reading-that-was-broken-off-is-a-try",
        f"{ADDRESSES}/gate.py",
        "        except Exception:\n            self._note_tried(guest_id)\n",
        "        except BaseException:\n            self._note_tried(guest_id)\n",
        test=f"{HANDOVER}a_leader_that_is_stopped_while_it_reads_passes_on_what_it_found",
    ),
    Fault(
        "who-did-not-answer-before-the-gate-opened-comes-first-for-good",
        f"{ADDRESSES}/gate.py",
        "            self.awaited.clear()\n",
        "",
        test="test_start.py::"
        "test_a_guest_cluster_that_did_not_answer_before_the_gate_opened_is_visited_like_any_other_then",
    ),
    Fault(
        "a-lease-that-changed-is-trusted",
        f"{ADDRESSES}/handover.py",
        "        elif not is_as_written:\n            self.end()\n",
        "",
        test=f"{HANDOVER}a_leader_that_finds_its_lease_changed_hands_nothing_over",
    ),
    Fault(
        "a-leader-that-ends-for-a-fault-is-trusted",
        "fipop/operator/app.py",
        "            self._manager.handover.end()\n",
        "",
        test=f"{HANDOVER}a_leader_that_ends_for_a_fault_hands_nothing_over",
    ),
    Fault(
        "a-floating-ip-is-let-go-under-a-service",
        "fipop/guests/services.py",
        "        if any(one in in_use for one in has):\n            busy.add(each.name)\n",
        "",
        ("--demand",),
    ),
    Fault(
        "what-people-made-is-let-go",
        "fipop/guests/services.py",
        "if each.is_made_for_services and not is_kept",
        "if not is_kept",
        ("--demand",),
    ),
)


def plant(fault: Fault, folder: Path) -> None:
    """Copy the source into a folder, with the fault."""
    for each in COPIED:
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / each, folder / each, dirs_exist_ok=True, ignore=ignored)
    for each in ("pyproject.toml", "tests/conftest.py"):
        shutil.copy(ROOT / each, folder / each)
    path = folder / fault.file
    if not fault.is_current():
        message = f"{fault.name}: its text is not in {fault.file} once; change the fault with the source"
        raise SystemExit(message)
    path.write_text(path.read_text(encoding="utf-8").replace(fault.old, fault.new), encoding="utf-8")


def find(fault: Fault, lives: int, seed: int) -> tuple[bool, str]:
    """Run lives with a fault until one is wrong that is right without it; return whether one was, and the text."""
    with tempfile.TemporaryDirectory() as name:
        plant(fault, Path(name))
        if fault.test:
            return passes(ROOT, fault.test) and not passes(Path(name), fault.test), fault.test
        end = seed + lives
        while seed < end:
            text = run(Path(name), seed, end - seed, fault.options)
            if not (match := re.match(r"--seed (\d+): ", text)):
                return False, text
            if run(ROOT, int(match[1]), 1, fault.options) != text:
                return True, f"in life {int(match[1]) - (end - lives) + 1}: {text}"
            seed = int(match[1]) + 1
    return False, f"{lives} lives"


def run(folder: Path, seed: int, lives: int, options: Sequence[str]) -> str:
    """Run lives with the source of a folder until one is wrong; return the first line, or the last of an error."""
    command = [sys.executable, "-m", "tests.operator.simulation", str(lives), *options]
    command += ["--seed", str(seed), "--acts", str(ACTS), "--stop"]
    environment = {**os.environ, "PYTHONHASHSEED": "0", "PYTHONPATH": str(folder)}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    return next(iter(done.stdout.splitlines()), done.stderr.strip().rpartition("\n")[2])


def passes(folder: Path, test: str) -> bool:
    """Run a test with the source of a folder."""
    command = [sys.executable, "-m", "pytest", "--quiet", "--exitfirst", f"tests/operator/{test}"]
    command += ["--rootdir", str(folder), "-p", "no:cacheprovider"]
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    return (
        subprocess.run(command, cwd=folder, env=environment, capture_output=True, check=False).returncode == 0
    )


def main(arguments: Sequence[str]) -> int:
    """Plant faults one after the other; return 1 if one was not found."""
    names = [each.name for each in FAULTS]
    parser = argparse.ArgumentParser(prog="python -m tests.operator.seeded")
    parser.add_argument("names", nargs="*", metavar="FAULT", help=f"default: all of {', '.join(names)}")
    parser.add_argument("--lives", type=int, default=200, help="the most of each fault; default: 200")
    parser.add_argument("--seed", type=int, default=1, help="of the first life")
    options = parser.parse_args(arguments)
    missed = 0
    chosen = [each for each in FAULTS if each.name in options.names or not options.names]
    for fault in chosen:
        is_found, what = find(fault, options.lives, options.seed)
        missed += not is_found
        sys.stdout.write(f"{fault.name}: {'found' if is_found else 'NOT FOUND'}: {what}\n")
        sys.stdout.flush()
    sys.stdout.write(f"seeded faults (in memory, no API server): faults={len(chosen)} missed={missed}\n")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
