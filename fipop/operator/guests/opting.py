"""Which guests are to have releases."""

from __future__ import annotations

from fipop.rancher.matching import Guest
from fipop.settings.options import GuestInstall, Settings


def installs(settings: Settings, guest: Guest) -> bool:
    """Whether fipop keeps kube-vip and its cloud provider in a guest."""
    install = settings.kubevip_guest_install
    return install is GuestInstall.ENABLED or (install is GuestInstall.CLUSTER_LABEL and guest.opted_in)
