"""docs/reference/annotations-and-labels.md has every annotation and label of the public contract."""

from pathlib import Path

import pytest

from fipop.api import names
from fipop.cloudprovider import ledger, services
from fipop.operator import crds

PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "annotations-and-labels.md").read_text()
NAMES = {
    *(value for name, value in vars(names).items() if name.startswith(("ANNOTATION_", "LABEL_"))),
    crds.ANNOTATION_REVISION,
    ledger.FORMAT,
    ledger.OPEN,
    services.LEDGER,
    services.ADDRESSES,
    services.INTERFACE,
    services.FORWARD_METHOD,
    services.LEGACY_LABEL,
    services.FINALIZER,
    f"{services.IMPLEMENTATION}={services.KUBE_VIP}",
}


@pytest.mark.parametrize("name", sorted(NAMES))
def test_the_page_has(name: str) -> None:
    assert f"`{name}`" in PAGE or f"`{name.replace(names.GROUP, '…')}`" in PAGE
