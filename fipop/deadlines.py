"""The durations whose order safety depends on, in seconds, and that order.

Two operators may work at once, or one may sleep and go on, so every step must be over before another relies on it.
A leader renews its lease long before the lease ends. One that cannot renew it stops its work while others still wait:
helm has ended by then, and a leader looks for a foreign helm for longer than a lease lasts. Addresses are written to a
guest cluster only by who leads for as long as that write may take, by a permit that is younger than that. A quarantine
lasts longer than any request that was begun before it. A process that stops is gone before its pod is killed.
"""

from __future__ import annotations

# Requests
REQUEST_SECONDS = 15.0
"""One request to our own API server."""
GUEST_REQUEST_SECONDS = 10.0
GUEST_SESSION_SECONDS = 45.0
"""All requests of one session, without the time that they wait for their turn."""

# Allocation
PERMIT_SECONDS = 5.0
"""How long the answer holds that addresses may be written to a guest: a process that slept must not write."""
MIN_QUARANTINE_SECONDS = 90
"""The shortest quarantine: longer than a request that was begun before it, also within an API server (60 s)."""

# Leading
LEASE_RETRY_SECONDS = 1.0
LEASE_RENEW_SECONDS = 2.0
LEASE_RENEW_DEADLINE_SECONDS = 8.0
LEASE_DURATION_SECONDS = 15
STOP_MARGIN_SECONDS = 0.5
"""How long before the end of the Lease fipop stops waiting for its work to end."""
GUEST_WRITE_SECONDS = 10.0
"""Addresses are written to a guest cluster only if this replica leads at least so much longer."""

# helm
HELM_TERMINATION_SECONDS = 3.0
"""How long a program may tidy up after SIGTERM before SIGKILL."""
HELM_DEADLINE_SECONDS = 300.0
"""Of one helm process. None of them waits for workloads: it makes some 120 requests, each of which a Rancher that is
busy answers in 1.4 s."""
HELM_IDLE_SECONDS = 60.0
"""A helm that sends its guest cluster no request for this time is ended earlier."""
FOREIGN_LEASE_SECONDS = 30.0
"""Until a leader that lost touch has stopped its helm."""
OTHER_HELM_SECONDS = 600.0
"""How long another helm can be alive."""

# Health and end
LONGEST_WATCH_SECONDS = 60
"""How long a watch lasts, as fipop asks the API server."""
WATCH_GRACE_SECONDS = 15.0
"""How much later than asked for the server may end a watch before the stream counts as dead."""
STOP_SECONDS = 25.0
"""A stop that takes longer is ended."""
POD_GRACE_SECONDS = 30
"""`terminationGracePeriodSeconds` of the chart."""

assert 0 < LEASE_RETRY_SECONDS <= LEASE_RENEW_SECONDS < LEASE_RENEW_DEADLINE_SECONDS < LEASE_DURATION_SECONDS
assert HELM_TERMINATION_SECONDS < LEASE_DURATION_SECONDS - LEASE_RENEW_DEADLINE_SECONDS - STOP_MARGIN_SECONDS
assert LEASE_DURATION_SECONDS + HELM_TERMINATION_SECONDS <= FOREIGN_LEASE_SECONDS
assert PERMIT_SECONDS < GUEST_REQUEST_SECONDS <= GUEST_WRITE_SECONDS
assert GUEST_WRITE_SECONDS < LEASE_DURATION_SECONDS - LEASE_RENEW_SECONDS, "else no guest is ever written"
assert GUEST_REQUEST_SECONDS < GUEST_SESSION_SECONDS
assert MIN_QUARANTINE_SECONDS > 60.0 + REQUEST_SECONDS
assert MIN_QUARANTINE_SECONDS > PERMIT_SECONDS + GUEST_REQUEST_SECONDS
assert HELM_IDLE_SECONDS < HELM_DEADLINE_SECONDS < OTHER_HELM_SECONDS
assert HELM_TERMINATION_SECONDS < STOP_SECONDS < POD_GRACE_SECONDS
