"""The example objects, each test with its own copy to bend."""

import base64
import copy
from pathlib import Path
from typing import Any

import yaml

Object = dict[str, Any]


class Examples:
    """Every object of example_objects.yaml by (kind, namespace, name), Secrets encoded as an API server serves them."""

    def __init__(self) -> None:
        text = (Path(__file__).parent / "example_objects.yaml").read_text()
        self.objects: dict[tuple[str, str, str], Object] = {}
        for obj in yaml.safe_load_all(text):
            strings = obj.pop("stringData", None)
            if strings is not None:
                obj["data"] = {key: encode(value) for key, value in strings.items()}
            kind = "ManagementCluster" if obj["apiVersion"].startswith("management") else obj["kind"]
            meta = obj["metadata"]
            self.objects[kind, meta.get("namespace", ""), meta["name"]] = obj

    def get(self, kind: str, namespace: str, name: str) -> Object:
        return copy.deepcopy(self.objects[kind, namespace, name])

    @property
    def cluster(self) -> Object:
        return self.get("Cluster", "fleet-default", "demo")

    @property
    def mirror(self) -> Object:
        return self.get("Cluster", "fleet-default", "c-k7p2d")

    @property
    def management(self) -> Object:
        return self.get("ManagementCluster", "", "c-m-4xk8q2vz")

    @property
    def harvester(self) -> Object:
        return self.get("ManagementCluster", "", "c-m-9hb2c7rr")

    @property
    def namespace(self) -> Object:
        return self.get("Namespace", "", "c-m-4xk8q2vz")

    @property
    def machine_config(self) -> Object:
        return self.get("HarvesterConfig", "fleet-default", "nc-demo-pool1-x2k8v")

    @property
    def credential(self) -> Object:
        return self.get("Secret", "cattle-global-data", "cc-7zqhx")


def encode(text: str) -> str:
    """Write a text as a Secret's data does."""
    return base64.b64encode(text.encode()).decode()
