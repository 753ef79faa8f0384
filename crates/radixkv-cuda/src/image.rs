//! The kernels as the driver takes them: compiled ahead and carried in the crate, or compiled when a device is opened.

use std::path::Path;

use cudarc::nvrtc::Ptx;

use super::error::OpenError;
use super::nvrtc;

/// Where a device's kernels come from.
#[derive(Debug, Clone, Copy, Default)]
#[non_exhaustive]
pub enum Images<'a> {
    /// Carried in the crate: binaries for compute capability 8.x and 9.0, PTX that the driver compiles for later ones.
    #[default]
    Prebuilt,
    /// Compiled from the sources in the crate, for the device at hand, by NVIDIA's run-time compiler.
    Compile {
        /// The library, `libnvrtc.so.12` or later; a bare name is looked for where the system looks for libraries.
        nvrtc: &'a Path,
    },
}

/// A source file of kernels, and what it compiles to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Module {
    Append,
    Bandwidth,
    Cascade,
    CompareKeys,
    CopyBlocks,
    Decode,
    Extend,
    Merge,
}

/// One module in all its forms.
pub(super) struct Forms {
    pub(super) name: &'static str,
    pub(super) source: &'static str,
    sm_80: &'static [u8],
    sm_90: &'static [u8],
    compute_80: &'static str,
}

/// Files that a source may include.
pub(super) const HEADERS: [(&str, &str); 4] = [
    ("abi.cuh", include_str!("../kernels/abi.cuh")),
    ("plat.cuh", include_str!("../kernels/plat.cuh")),
    ("rows.cuh", include_str!("../kernels/rows.cuh")),
    ("tile.cuh", include_str!("../kernels/tile.cuh")),
];

macro_rules! forms {
    ($name:literal) => {
        Forms {
            name: concat!($name, ".cu"),
            source: include_str!(concat!("../kernels/", $name, ".cu")),
            sm_80: include_bytes!(concat!("../kernels/prebuilt/", $name, ".sm_80.cubin")),
            sm_90: include_bytes!(concat!("../kernels/prebuilt/", $name, ".sm_90.cubin")),
            compute_80: include_str!(concat!("../kernels/prebuilt/", $name, ".compute_80.ptx")),
        }
    };
}

impl Module {
    pub(super) fn forms(self) -> Forms {
        match self {
            Self::Append => forms!("append"),
            Self::Bandwidth => forms!("bandwidth"),
            Self::Cascade => forms!("cascade"),
            Self::CompareKeys => forms!("compare_keys"),
            Self::CopyBlocks => forms!("copy_blocks"),
            Self::Decode => forms!("decode"),
            Self::Extend => forms!("extend"),
            Self::Merge => forms!("merge"),
        }
    }
}

impl Images<'_> {
    /// The image of a module for a device of this compute capability.
    pub(super) fn of(self, module: Module, capability: (u32, u32)) -> Result<Ptx, OpenError> {
        let forms = module.forms();
        match (self, capability) {
            (Self::Prebuilt, (8, _)) => Ok(Ptx::from_binary(forms.sm_80.to_vec())),
            (Self::Prebuilt, (9, _)) => Ok(Ptx::from_binary(forms.sm_90.to_vec())),
            (Self::Prebuilt, _) => Ok(Ptx::from_src(forms.compute_80)),
            (Self::Compile { nvrtc }, _) => Ok(Ptx::from_binary(nvrtc::compile(nvrtc, &forms, capability)?)),
        }
    }
}
