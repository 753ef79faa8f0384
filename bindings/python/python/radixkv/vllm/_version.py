"""Which vLLM the adapters work with."""

import os
import warnings

TESTED_WITH = "0.33.0"
VARIABLE = "RADIXKV_VLLM_UNTESTED"


def check_version():
    """Raises ImportError for a vLLM of another minor version than the tested one.

    vLLM calls its offloading interfaces experimental, and changes them between minor versions. With
    the environment variable `RADIXKV_VLLM_UNTESTED=1` it is a warning.
    """
    import vllm

    found = vllm.__version__
    if release(found) == release(TESTED_WITH):
        return
    told = f"radixkv's adapters were tested with vLLM {TESTED_WITH}, and this is vLLM {found}"
    if os.environ.get(VARIABLE) != "1":
        raise ImportError(f"{told}: install vllm=={TESTED_WITH}, or try it with {VARIABLE}=1")
    warnings.warn(told, RuntimeWarning, stacklevel=3)


def release(version):
    """The major and minor version, such as `0.33`."""
    return ".".join(version.split(".")[:2])
