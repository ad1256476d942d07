"""The helm chart of this repository, copied into a folder: the root has much that does not belong to it.

python -m localfleet.chart FOLDER
"""

import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
ENTRIES = (
    *("Chart.yaml", "values.yaml", "values.schema.json", "crds", "files", "templates"),
    *("README.md", "LICENSE", "NOTICE", "app-readme.md", "questions.yaml"),
)
"""What belongs to the chart. Anything else at the root is in no package, whatever it is."""
_LEFT_BEHIND = shutil.ignore_patterns(".*", "*~", "*.orig", "*.rej")
"""What editors and git leave in a folder: helm would render it as a template."""


def copy_chart(folder: Path) -> Path:
    """Copy the chart into `folder`, in place of what is there; return `folder`."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name in ENTRIES:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=_LEFT_BEHIND)
        else:
            shutil.copy(source, folder)
    return folder


if __name__ == "__main__":
    copy_chart(Path(sys.argv[1]))
