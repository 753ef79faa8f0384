"""The version of vLLM that the adapters support."""

import os
import warnings

TESTED_WITH = "0.33.0"
VARIABLE = "RADIXKV_VLLM_UNTESTED"


def check_version():
    """Raises ImportError if the minor version of vLLM is not the tested one.

    vLLM's offloading interfaces are experimental, and change between minor versions. With the
    environment variable `RADIXKV_VLLM_UNTESTED=1` this is only a warning.
    """
    import vllm

    found = vllm.__version__
    if release(found) == release(TESTED_WITH):
        return
    told = f"radixkv's adapters were tested with vLLM {TESTED_WITH}, but this is vLLM {found}"
    if os.environ.get(VARIABLE) != "1":
        raise ImportError(f"{told}: install vllm=={TESTED_WITH}, or try it with {VARIABLE}=1")
    warnings.warn(told, RuntimeWarning, stacklevel=3)


def release(version):
    """The major and minor version, such as `0.33`."""
    return ".".join(version.split(".")[:2])
