//! The kernels' source files and their compiled images, which are embedded in the crate.

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
    ExtendWgmma,
    Latent,
    Merge,
}

/// The files of a module: its source, and what it compiles to.
pub(super) struct ModuleFiles {
    pub(super) name: &'static str,
    pub(super) source: &'static str,
    pub(super) prebuilt: Prebuilt,
}

/// What a module compiles to.
pub(super) enum Prebuilt {
    /// Images for all devices.
    All { sm_80: &'static [u8], sm_90: &'static [u8], compute_80: &'static str },
    /// A binary of compute capability 9.0 with the instructions that no other one has.
    Hopper { sm_90a: &'static [u8] },
}

/// Files that the sources include.
pub(super) const HEADERS: [(&str, &str); 9] = [
    ("abi.cuh", include_str!("../kernels/abi.cuh")),
    ("element.cuh", include_str!("../kernels/element.cuh")),
    ("item.cuh", include_str!("../kernels/item.cuh")),
    ("latent.cuh", include_str!("../kernels/latent.cuh")),
    ("plat.cuh", include_str!("../kernels/plat.cuh")),
    ("rows.cuh", include_str!("../kernels/rows.cuh")),
    ("rows_wgmma.cuh", include_str!("../kernels/rows_wgmma.cuh")),
    ("tile.cuh", include_str!("../kernels/tile.cuh")),
    ("wgmma.cuh", include_str!("../kernels/wgmma.cuh")),
];

macro_rules! files {
    ($name:literal) => {
        ModuleFiles {
            name: concat!($name, ".cu"),
            source: include_str!(concat!("../kernels/", $name, ".cu")),
            prebuilt: Prebuilt::All {
                sm_80: include_bytes!(concat!("../kernels/prebuilt/", $name, ".sm_80.cubin")),
                sm_90: include_bytes!(concat!("../kernels/prebuilt/", $name, ".sm_90.cubin")),
                compute_80: include_str!(concat!("../kernels/prebuilt/", $name, ".compute_80.ptx")),
            },
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
            Self::ExtendWgmma => ModuleFiles {
                name: "extend_wgmma.cu",
                source: include_str!("../kernels/extend_wgmma.cu"),
                prebuilt: Prebuilt::Hopper { sm_90a: include_bytes!("../kernels/prebuilt/extend_wgmma.sm_90a.cubin") },
            },
            Self::Latent => files!("latent"),
            Self::Merge => files!("merge"),
        }
    }
}
