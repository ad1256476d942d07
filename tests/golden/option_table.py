"""The option table of kube-fip-config: defaults, and which values are accepted and refused."""

from fipop.settings.options import DEFAULTS, find_unknown, parse_settings, settings_data, warnings
from tests.golden.normal import to_yaml

_ANYWHERE = (
    *(
        "",
        " ",
        "true",
        "True",
        "TRUE",
        "t",
        "yes",
        "1",
        "0",
        "-1",
        "2",
        "1.5",
        "1e9",
        "480",
        "99999999999999999999",
    ),
    *(
        "8080",
        "8081",
        "65535",
        "65536",
        "10%",
        "0%",
        "100%",
        "101%",
        "Info",
        "info",
        "Debug",
        "Error",
        "enabled",
    ),
    *(
        "disabled",
        "clusterlabel",
        "Progressive",
        "Parallel",
        "Paused",
        "Rollback",
        "Pause",
        "None",
        "kube-system",
    ),
    *(
        "Kube_System",
        "v1.2.3",
        "1.x",
        "^1.2",
        "latest",
        "kube-vip",
        "-kube-vip",
        "[",
        "a: b",
        "- a",
        "null",
        "{}",
    ),
    *("https://charts.example.com", "http://charts.example.com/x", "https://me:secret@charts.example.com"),
    *("https://charts.example.com/?token=secret", "oci://registry.example.com/charts/kube-vip", "oci://"),
    *(
        "oci://registry.example.com/kube-vip:1.2.3",
        "ftp://charts.example.com",
        "sha256:" + "0" * 64,
        "0" * 64,
    ),
)
"""Each option is tried with each of these: what one accepts shows what another one refuses."""
_LONG = {"54 letters": "x" * 54, "64 letters": "x" * 64, "300 letters": "x" * 300}
_SINGLE = {
    "kubevipChartValues": {
        "nested": "image:\n  tag: v1.2.3\nenv:\n  vip_interface: eth0\n",
        "a key twice": "a: 1\na: 2\n",
        "an alias": "a: &x [1]\nb: *x\n",
        "a tag of a language": "a: !!python/object:os.system {}\n",
        "two documents": "a: 1\n---\nb: 2\n",
    },
}
_TOGETHER: dict[str, dict[str, str]] = {
    "an empty repository while charts come from it": {"kubevipChartRepoUrl": ""},
    "an empty repository while both charts come from elsewhere": {
        "kubevipChartRepoUrl": "",
        "kubevipChartRef": "oci://registry.example.com/charts/kube-vip",
        "kubevipCloudProviderChartRef": "oci://registry.example.com/charts/kube-vip-cloud-provider",
    },
    "an unknown option": {"kubevipUpdates": "true"},
    "an option in the wrong case": {"metricsport": "9000"},
    "an old cloud provider outside of kube-system": {"kubevipNamespace": "kube-vip"},
    "a kube-vip that loses addresses": {"kubevipChartValues": "image:\n  tag: v1.0.2\n"},
    "a success that takes longer than the deadline": {
        "kubevipRolloutMinSuccessTime": "600",
        "kubevipRolloutProgressDeadline": "600",
    },
}


def make_options() -> dict[str, str]:
    """Return what each option accepts of the samples, and why it refuses the others."""
    defaults = settings_data(DEFAULTS)
    table = {option: {"default": defaults[option], **_try(option)} for option in sorted(defaults)}
    together = {name: _try_together(data, defaults) for name, data in _TOGETHER.items()}
    return {"options.yaml": to_yaml({"options": table, "together": together})}


def _try(option: str) -> dict[str, object]:
    """Return the accepted samples on one line, and each reason of a refusal with the first sample that it refuses."""
    samples = {
        **{each.strip() or _blank(each): each for each in _ANYWHERE},
        **_LONG,
        **_SINGLE.get(option, {}),
    }
    accepted: list[str] = []
    others: list[str] = []
    refused: dict[str, str] = {}
    for name, text in samples.items():
        settings, bad = parse_settings({option: text}, DEFAULTS)
        for each in bad:
            hidden_or_cut = f"{name}, {f'shown as {each.value}' if each.value else 'hidden'}"
            refused.setdefault(each.reason, name if each.value in {name, text} else hidden_or_cut)
        value = settings_data(settings)[option]
        if bad:
            others.append(name)
        else:
            accepted.append(name if value == text else f"{name} as {value or _blank(value)}")
    few = len(accepted) <= len(others)
    return {"accepts": ", ".join(accepted) if few else f"all but {', '.join(others)}", "refuses": refused}


def _blank(text: str) -> str:
    return "(blank)" if text else "(empty)"


def _try_together(data: dict[str, str], defaults: dict[str, str]) -> dict[str, object]:
    settings, bad = parse_settings(data, DEFAULTS)
    values = settings_data(settings)
    return {
        "changed": {key: value for key, value in values.items() if value != defaults[key]},
        "refused": [f"{each.option} {each.value!r} {each.reason}" for each in bad],
        "warnings": [*warnings(settings), *find_unknown(data)],
    }
