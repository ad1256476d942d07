"""How tests reach an API server over TLS: a SIMULATION of kubeconfigs and ServiceAccounts alone."""

from kubernetes.aio.client.configuration import Configuration

from fipop.kube.server import HttpServer

NOBODY = "https://127.0.0.1:1"
"""A server that refuses connections."""


def configure(url: str = NOBODY, *, ca_pem: str | None = None, token: str = "t") -> Configuration:
    """Return the configuration for a server that is trusted by its certificate authority alone."""
    found = Configuration(host=url, ca_cert_data=ca_pem, api_key={"BearerToken": f"Bearer {token}"})
    found.client_session_kwargs = {"trust_env": False}
    return found


def reach(url: str = NOBODY, *, ca_pem: str | None = None, token: str = "t") -> HttpServer:
    """Return the API server that is there, or that nobody is."""
    return HttpServer(configure(url, ca_pem=ca_pem, token=token))
