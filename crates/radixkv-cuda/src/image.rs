//! The images of the kernels that the driver loads: embedded in the crate, or compiled when a
//! device is opened.

use std::path::Path;

use cudarc::nvrtc::Ptx;

use super::error::OpenError;
use super::module::{Module, Prebuilt};
use super::nvrtc;

/// Where a device's kernels come from.
///
/// ```
/// use radixkv_cuda::Images;
///
/// assert!(matches!(Images::default(), Images::Prebuilt));
/// let compiled = Images::Compile { nvrtc: std::path::Path::new("libnvrtc.so.12") };
/// # drop(compiled);
/// ```
#[derive(Debug, Clone, Copy, Default)]
#[non_exhaustive]
pub enum Images<'a> {
    /// The images that are embedded in the crate: binaries for compute capability 8.x and 9.0; PTX
    /// for later ones, which the driver compiles.
    #[default]
    Prebuilt,
    /// Images compiled for the device from the sources that are embedded in the crate, by NVIDIA's
    /// run-time compiler.
    Compile {
        /// The compiler's library, `libnvrtc.so.12` or later; a bare name is searched on the
        /// system's library path.
        nvrtc: &'a Path,
    },
}

impl Images<'_> {
    /// The image of a module for a device of this compute capability, if the module is for it.
    pub(super) fn of(self, module: Module, capability: (u32, u32)) -> Result<Option<Ptx>, OpenError> {
        let files = module.files();
        let binary = |bytes: &[u8]| Ok(Some(Ptx::from_binary(bytes.to_vec())));
        match (self, &files.prebuilt, capability) {
            (_, Prebuilt::Hopper { .. }, of) if of != (9, 0) => Ok(None),
            (Self::Compile { nvrtc }, ..) => binary(&nvrtc::compile(nvrtc, &files, capability)?),
            (Self::Prebuilt, Prebuilt::Hopper { sm_90a }, _) => binary(sm_90a),
            (Self::Prebuilt, Prebuilt::All { sm_80, .. }, (8, _)) => binary(sm_80),
            (Self::Prebuilt, Prebuilt::All { sm_90, .. }, (9, _)) => binary(sm_90),
            (Self::Prebuilt, Prebuilt::All { compute_80, .. }, _) => Ok(Some(Ptx::from_src(*compute_80))),
        }
    }
}
