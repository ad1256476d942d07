"""Errors of the core: one sentence each, fit for a condition, whatever people wrote."""

import pytest

from fipop.ipam.errors import (
    AddressOutOfRangeError,
    AddressSyntaxError,
    FamilyMissingError,
    IpamError,
)

HOSTILE = 'a"\n\x1b[31m' + "x" * 500


@pytest.mark.parametrize(
    "error",
    [
        AddressSyntaxError(text=HOSTILE, problem="is no address"),
        FamilyMissingError(range_name=HOSTILE, pool_text=HOSTILE, family="IPv6", families=()),
        AddressOutOfRangeError(
            address="10.0.0.1", range_name=HOSTILE, pool_text=HOSTILE, reason="is excluded"
        ),
    ],
)
def test_what_people_wrote_is_quoted_cut_and_printable(error: IpamError) -> None:
    assert str(error).isprintable()
    assert len(str(error)) < 300
