"""The version of SGLang that this package was tested with."""

import warnings
from importlib import metadata

VERSION = "0.5.23"


def check():
    """Warns once if another version is installed: SGLang's interfaces change between versions."""
    try:
        found = metadata.version("sglang")
    except metadata.PackageNotFoundError:
        return
    if found != VERSION:
        warnings.warn(f"radixkv was tested with SGLang {VERSION}, and this is {found}", stacklevel=3)
