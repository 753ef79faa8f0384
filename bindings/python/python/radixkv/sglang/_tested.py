"""Which SGLang this package was tested with."""

import warnings
from importlib import metadata

VERSION = "0.5.23"


def check():
    """Warns once if another SGLang is installed: its interfaces change from version to version."""
    try:
        found = metadata.version("sglang")
    except metadata.PackageNotFoundError:
        return
    if found != VERSION:
        warnings.warn(f"radixkv was tested with SGLang {VERSION}, and this is {found}", stacklevel=3)
