"""Who has addresses, in short words."""

PAST = [
    {"namespace": "c-m-8", "name": "old", "cluster": "eight", "releasedAt": "2026-02-02T00:00:00Z"},
    {"namespace": "c-m-7", "name": "older", "cluster": "seven", "releasedAt": "2026-01-02T00:00:00Z"},
]
