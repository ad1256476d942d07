import socket
from pathlib import Path

import pytest

from localfleet.errors import NoFreePortError
from localfleet.ports import Ports, is_free


def listen(port: int) -> socket.socket:
    server = socket.socket()
    server.bind(("127.0.0.1", port))
    server.listen()
    return server


def test_a_reserved_port_can_be_listened_on(tmp_path: Path) -> None:
    with Ports(tmp_path / "ports") as ports:
        port = ports.reserve()
        assert is_free(port)
        with listen(port):
            assert not is_free(port)


def test_a_port_is_below_those_that_the_kernel_gives_to_connections(tmp_path: Path) -> None:
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    with Ports(tmp_path / "ports") as ports:
        assert ports.reserve() < lowest


def test_two_fleets_never_get_the_same_port_though_nobody_listens_yet(tmp_path: Path) -> None:
    with Ports() as real:
        candidates = [real.reserve() for _ in range(3)]
        with Ports(tmp_path, candidates) as other:
            with Ports(tmp_path, candidates) as one:
                assert [one.reserve(), other.reserve(), one.reserve()] == candidates
                with pytest.raises(NoFreePortError):
                    other.reserve()
            assert other.reserve() == candidates[0], "given back"


def test_a_port_on_which_somebody_listens_is_passed_over(tmp_path: Path) -> None:
    with Ports() as real, listen(real.reserve()) as stranger:
        free = real.reserve()
        with Ports(tmp_path, (stranger.getsockname()[1], free)) as ports:
            assert ports.reserve() == free
