"""The packages of an image, read from what dpkg keeps and from what go reports."""

from scripts.release_packages import Package, read_debian_packages, read_go_modules

REPORT = """\
/mnt/usr/local/bin/helm: go1.26.8
\tpath\thelm.sh/helm/v3/cmd/helm
\tmod\texample.test/build\t(devel)\t
\tdep\tgithub.com/BurntSushi/toml\tv1.6.0\th1:aaaa=
\tdep\tgithub.com/moby/term\tv0.5.2\th1:bbbb=
\t=>\texample.test/fork/term\tv0.6.0\th1:cccc=
\tdep\thelm.sh/helm/v3\tv3.22.0\th1:dddd=
\tbuild\t-ldflags="-s -w -X helm.sh/helm/v3/internal/version.version=v3.22.0"
/mnt/usr/local/bin/other: go1.27.0
\tdep\tgithub.com/BurntSushi/toml\tv1.6.0\th1:aaaa=
\tdep\tgopkg.in/yaml.v3\tv3.0.1\th1:eeee=
"""


def go(namespace: str | None, name: str, version: str) -> Package:
    return Package(kind="golang", namespace=namespace, name=name, version=version)


def test_each_module_is_named_once_and_a_replaced_one_by_what_replaces_it() -> None:
    assert read_go_modules(REPORT) == [
        go("example.test/fork", "term", "v0.6.0"),
        go("github.com/BurntSushi", "toml", "v1.6.0"),
        go("gopkg.in", "yaml.v3", "v3.0.1"),
        go("helm.sh/helm", "v3", "v3.22.0"),
        go(None, "stdlib", "v1.26.8"),
        go(None, "stdlib", "v1.27.0"),
    ]


STATUS = """\
Package: base-files
Status: install ok installed
Architecture: amd64
Version: 12.4+deb12u12
Description: Debian base system
 Package: this line belongs to the description
 .
 Version: this one, too

Package: removed
Status: deinstall ok config-files
Architecture: amd64
Version: 1.0

Package: half
Status: install reinstreq half-installed
Architecture: amd64
Version: 1.0

Package: tzdata
Status: hold ok installed
Architecture: all
Version: 1:2026a-0
"""
OS_RELEASE = (
    'PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\nVERSION_ID="12"\nVERSION_CODENAME=bookworm\nID=debian\n'
)


def deb(
    name: str, version: str, arch: str, *, namespace: str = "debian", distro: str = "bookworm"
) -> Package:
    qualifiers = {"arch": arch, "distro": distro}
    return Package(kind="deb", namespace=namespace, name=name, version=version, qualifiers=qualifiers)


def test_what_is_installed_is_named_and_what_was_removed_is_not() -> None:
    assert read_debian_packages(STATUS, OS_RELEASE) == [
        deb("base-files", "12.4+deb12u12", "amd64"),
        deb("tzdata", "1:2026a-0", "all"),
    ]


def test_a_distribution_without_a_name_is_named_by_its_number() -> None:
    found = read_debian_packages(STATUS, 'ID=other\nVERSION_ID="7"\n')
    assert found[0] == deb("base-files", "12.4+deb12u12", "amd64", namespace="other", distro="other-7")
