//! The images of the kernels that the driver loads: carried in the crate, or compiled when a device is opened.

use std::path::Path;

use cudarc::nvrtc::Ptx;

use super::error::OpenError;
use super::module::Module;
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
    /// The images that the crate carries: binaries for compute capability 8.x and 9.0; PTX for later ones, which the
    /// driver compiles.
    #[default]
    Prebuilt,
    /// Images compiled for the device from the sources that the crate carries, by NVIDIA's run-time compiler.
    Compile {
        /// The compiler's library, `libnvrtc.so.12` or later; a bare name is searched where the system has libraries.
        nvrtc: &'a Path,
    },
}

impl Images<'_> {
    /// The image of a module for a device of this compute capability.
    pub(super) fn of(self, module: Module, capability: (u32, u32)) -> Result<Ptx, OpenError> {
        let files = module.files();
        match (self, capability) {
            (Self::Prebuilt, (8, _)) => Ok(Ptx::from_binary(files.sm_80.to_vec())),
            (Self::Prebuilt, (9, _)) => Ok(Ptx::from_binary(files.sm_90.to_vec())),
            (Self::Prebuilt, _) => Ok(Ptx::from_src(files.compute_80)),
            (Self::Compile { nvrtc }, _) => Ok(Ptx::from_binary(nvrtc::compile(nvrtc, &files, capability)?)),
        }
    }
}
