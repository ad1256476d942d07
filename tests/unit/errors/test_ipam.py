"""Errors of the core: one sentence each, fit for a condition, whatever people wrote."""

import pytest

from fipop.ipam.errors import (
    AddressOutOfRangeError,
    AddressSyntaxError,
    FamilyMissingError,
    IpamError,
    RangeFullError,
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


def test_a_full_range_is_named_without_counts_so_that_no_status_changes_with_them() -> None:
    told = str(RangeFullError(range_name="lan", family="IPv4"))
    assert 'range "lan" is full: every IPv4 address' in told
    assert not any(letter.isdigit() for letter in told.replace("IPv4", ""))


def test_a_missing_family_names_those_that_there_are() -> None:
    error = FamilyMissingError(range_name="r", pool_text="10.0.0.0/24", family="IPv6", families=("IPv4",))
    assert 'range "r" ("10.0.0.0/24") has no IPv6' in str(error)
    assert "only IPv4" in str(error)
