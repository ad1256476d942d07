"""Services as kube-vip-cloud-provider leaves them, with whatever their users wrote into the annotation.

Each is (annotation, loadBalancerIP, spec). Of the addresses, 10.0.0.* and 2001:db8::* are of the pool.
"""

from typing import Any

Left = tuple[str, str, dict[str, Any]]

V4 = {"ipFamilyPolicy": "SingleStack", "ipFamilies": ["IPv4"]}
V6 = {"ipFamilyPolicy": "SingleStack", "ipFamilies": ["IPv6"]}
PREFERS = {"ipFamilyPolicy": "PreferDualStack", "ipFamilies": ["IPv4", "IPv6"]}
BOTH = {"ipFamilyPolicy": "RequireDualStack", "ipFamilies": ["IPv4", "IPv6"]}
BOTH_V6 = {"ipFamilyPolicy": "RequireDualStack", "ipFamilies": ["IPv6", "IPv4"]}

CHOSEN: dict[str, Left] = {
    "one address": ("10.0.0.5", "10.0.0.5", V4),
    "one of IPv6": ("2001:db8::5", "2001:db8::5", V6),
    "both families": ("10.0.0.5,2001:db8::5", "10.0.0.5", BOTH),
    "both families, IPv6 first": ("2001:db8::5,10.0.0.5", "2001:db8::5", BOTH_V6),
    "outside all pools by now": ("10.7.0.1", "10.7.0.1", V4),
    "by DHCP": ("0.0.0.0", "0.0.0.0", V4),
    "by DHCP, both families": ("0.0.0.0", "0.0.0.0", BOTH),
}
STATIC: dict[str, tuple[str, dict[str, Any]]] = {
    "an address of the pool": ("10.0.0.5", V4),
    "an address outside all pools": ("192.168.1.7", V4),
    "two addresses of one family": ("192.168.1.7,192.168.1.8", V4),
    "two of one family, both wanted": ("10.0.0.5,10.0.0.6", BOTH),
    "both families, one wanted": ("192.168.1.7,fd00::7", V4),
    "both families, the other first": ("fd00::7,192.168.1.7", V4),
    "both families wanted the other way round": ("fd00::7,192.168.1.7", BOTH),
    "three addresses": ("10.0.0.5,10.0.0.6,2001:db8::5", PREFERS),
    "the other family": ("fd00::9", V4),
    "the other family, IPv4": ("192.168.1.7", V6),
    "a host name": ("lb.example.org", V4),
    "a host name first": ("lb.example.org,10.0.0.5", V4),
    "a host name behind": ("10.0.0.5,lb.example.org", V4),
    "a host name behind, both wanted": ("10.0.0.5,lb.example.org", BOTH),
    "DHCP": ("0.0.0.0", V4),
    "DHCP beside an address": ("0.0.0.0,fd00::7", PREFERS),
    "an address beside DHCP": ("192.168.1.7,0.0.0.0", V4),
    "blanks": (" 10.0.0.5 , 10.0.0.6 ", V4),
    "another spelling": ("FD00:0::7", V6),
    "the same twice": ("10.0.0.5,10.0.0.5", V4),
}
LEFT: dict[str, Left] = {
    **{f"chosen: {what}": each for what, each in CHOSEN.items()},
    **{f"A only: {what}": (a, "", spec) for what, (a, spec) in STATIC.items()},
    **{
        f"A and L, the first: {what}": (a, a.split(",")[0].strip(), spec)
        for what, (a, spec) in STATIC.items()
    },
    **{f"A and L, another: {what}": (a, "10.0.0.8", spec) for what, (a, spec) in STATIC.items()},
    **{f"A and L, a host name: {what}": (a, "lb.example.org", spec) for what, (a, spec) in STATIC.items()},
}
