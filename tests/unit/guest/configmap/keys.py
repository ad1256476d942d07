"""Keys of a guest's ConfigMap, in short words."""

from datetime import UTC, datetime

from fipop.guest.configmap.keys import WantedAddress

START = datetime(2026, 1, 1, tzinfo=UTC)


FIRST = WantedAddress(floating_ip=("c-m-1", "first"), created=START, addresses=("10.0.0.1",))
