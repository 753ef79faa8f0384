//! The kernels' source files and what they compile to, as the crate carries them.

/// A source file of kernels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Module {
    Append,
    Bandwidth,
    Cascade,
    CompareKeys,
    CopyBlocks,
    Decode,
    Extend,
    Latent,
    Merge,
}

/// The files of a module: its source, and what it compiles to.
pub(super) struct ModuleFiles {
    pub(super) name: &'static str,
    pub(super) source: &'static str,
    pub(super) sm_80: &'static [u8],
    pub(super) sm_90: &'static [u8],
    pub(super) compute_80: &'static str,
}

/// Files that the sources include.
pub(super) const HEADERS: [(&str, &str); 7] = [
    ("abi.cuh", include_str!("../kernels/abi.cuh")),
    ("element.cuh", include_str!("../kernels/element.cuh")),
    ("item.cuh", include_str!("../kernels/item.cuh")),
    ("latent.cuh", include_str!("../kernels/latent.cuh")),
    ("plat.cuh", include_str!("../kernels/plat.cuh")),
    ("rows.cuh", include_str!("../kernels/rows.cuh")),
    ("tile.cuh", include_str!("../kernels/tile.cuh")),
];

macro_rules! files {
    ($name:literal) => {
        ModuleFiles {
            name: concat!($name, ".cu"),
            source: include_str!(concat!("../kernels/", $name, ".cu")),
            sm_80: include_bytes!(concat!("../kernels/prebuilt/", $name, ".sm_80.cubin")),
            sm_90: include_bytes!(concat!("../kernels/prebuilt/", $name, ".sm_90.cubin")),
            compute_80: include_str!(concat!("../kernels/prebuilt/", $name, ".compute_80.ptx")),
        }
    };
}

impl Module {
    pub(super) fn files(self) -> ModuleFiles {
        match self {
            Self::Append => files!("append"),
            Self::Bandwidth => files!("bandwidth"),
            Self::Cascade => files!("cascade"),
            Self::CompareKeys => files!("compare_keys"),
            Self::CopyBlocks => files!("copy_blocks"),
            Self::Decode => files!("decode"),
            Self::Extend => files!("extend"),
            Self::Latent => files!("latent"),
            Self::Merge => files!("merge"),
        }
    }
}
