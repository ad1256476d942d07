"""Keys of a guest's ConfigMap, in short words."""

from tests.harness.tasks import asking

FIRST = asking("first")
