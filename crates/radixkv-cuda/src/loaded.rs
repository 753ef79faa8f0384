//! The kernels, loaded into a context.

use std::sync::Arc;

use cudarc::driver::sys::CUfunction_attribute;
use cudarc::driver::{CudaContext, CudaFunction, CudaModule, DriverError};

use super::error::OpenError;
use super::image::Images;
use super::kernel::Kernel;
use super::module::Module;

/// Every kernel, loaded into one context.
#[derive(Debug)]
pub(super) struct LoadedKernels {
    functions: Vec<CudaFunction>,
}

impl LoadedKernels {
    /// Loads the images for a device of this compute capability.
    pub(super) fn load(
        context: &Arc<CudaContext>,
        capability: (u32, u32),
        images: Images<'_>,
    ) -> Result<Self, OpenError> {
        let mut modules: Vec<(Module, Arc<CudaModule>)> = Vec::new();
        let mut functions = Vec::new();
        for kernel in Kernel::all() {
            debug_assert_eq!(kernel.index(), functions.len());
            let refused = |error: DriverError| OpenError::image(kernel, error);
            let module = match modules.iter().find(|(module, _)| *module == kernel.module()) {
                Some((_, module)) => Arc::clone(module),
                None => {
                    let image = images.of(kernel.module(), capability)?;
                    let module = context.load_module(image).map_err(refused)?;
                    modules.push((kernel.module(), Arc::clone(&module)));
                    module
                }
            };
            let function = module.load_function(&kernel.to_string()).map_err(refused)?;
            let shared = kernel.shape().shared_bytes as i32;
            let most = CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            function.set_attribute(most, shared).map_err(refused)?;
            functions.push(function);
        }
        Ok(Self { functions })
    }

    pub(super) fn function(&self, kernel: Kernel) -> &CudaFunction {
        &self.functions[kernel.index()]
    }
}
