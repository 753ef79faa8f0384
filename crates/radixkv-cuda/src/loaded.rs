//! The kernels, loaded into a context. `device` loads them, `launch` starts them.

use std::sync::Arc;

use cudarc::driver::sys::{CUfunction_attribute, CUresult};
use cudarc::driver::{CudaContext, CudaFunction, CudaModule, DriverError};

use super::error::OpenError;
use super::image::Images;
use super::kernel::Kernel;
use super::module::Module;

/// Every kernel, loaded into one context; those that the device has no instructions for are left
/// out.
#[derive(Debug)]
pub(super) struct LoadedKernels {
    functions: Vec<Option<CudaFunction>>,
}

impl LoadedKernels {
    /// Loads the images for a device of this compute capability.
    pub(super) fn load(
        context: &Arc<CudaContext>,
        capability: (u32, u32),
        images: Images<'_>,
    ) -> Result<Self, OpenError> {
        let mut modules: Vec<(Module, Option<Arc<CudaModule>>)> = Vec::new();
        let mut functions = Vec::new();
        for kernel in Kernel::all() {
            debug_assert_eq!(kernel.index(), functions.len());
            let refused = |error: DriverError| OpenError::image(kernel, error);
            let module = match modules.iter().find(|(module, _)| *module == kernel.module()) {
                Some((_, module)) => module.clone(),
                None => {
                    let image = images.of(kernel.module(), capability)?;
                    let module = image.map(|image| context.load_module(image)).transpose().map_err(refused)?;
                    modules.push((kernel.module(), module.clone()));
                    module
                }
            };
            let function = match module.map(|module| module.load_function(&kernel.to_string())) {
                None => None,
                // The stand-in driver of the tests has only the instructions that all devices have.
                Some(Err(DriverError(CUresult::CUDA_ERROR_NOT_FOUND))) if kernel.has_another() => None,
                Some(function) => Some(function.map_err(refused)?),
            };
            let Some(function) = function else {
                functions.push(None);
                continue;
            };
            let shared = kernel.shape().shared_bytes as i32;
            let most = CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            function.set_attribute(most, shared).map_err(refused)?;
            functions.push(Some(function));
        }
        Ok(Self { functions })
    }

    pub(super) fn has(&self, kernel: Kernel) -> bool {
        self.functions[kernel.index()].is_some()
    }

    /// The function of a kernel, which must be loaded.
    pub(super) fn function(&self, kernel: Kernel) -> &CudaFunction {
        self.functions[kernel.index()]
            .as_ref()
            .unwrap_or_else(|| unreachable!("{kernel} is launched where it is loaded"))
    }
}
