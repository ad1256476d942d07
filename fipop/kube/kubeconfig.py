"""The parts of a kubeconfig, which anyone may have written: values in, values out."""

from __future__ import annotations

from fipop.jsons import JsonView, as_list, as_mapping


def find_current_context(kubeconfig: JsonView) -> tuple[JsonView, JsonView] | None:
    """Return the cluster and the user of the current context; None if no context has its name.

    A cluster or a user that the kubeconfig does not have is empty.
    """
    context = _find(kubeconfig, "context", kubeconfig.get("current-context"))
    if not context:
        return None
    return _find(kubeconfig, "cluster", context.get("cluster")), _find(
        kubeconfig, "user", context.get("user")
    )


def _find(kubeconfig: JsonView, kind: str, name: object) -> JsonView:
    entries = map(as_mapping, as_list(kubeconfig.get(f"{kind}s")))
    return as_mapping(next((each.get(kind) for each in entries if name and each.get("name") == name), {}))
