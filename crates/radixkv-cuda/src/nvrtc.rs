//! Compiles kernels when a device is opened, with the compiler that the embedder names.
#![allow(unsafe_code)]

use std::ffi::{CString, c_char, c_int, c_void};
use std::path::Path;

use libloading::{Library, Symbol};

use super::error::OpenError;
use super::module::{HEADERS, ModuleFiles, Prebuilt};

type Program = *mut c_void;
type Strings = *const *const c_char;
type Create = unsafe extern "C" fn(*mut Program, *const c_char, *const c_char, c_int, Strings, Strings) -> u32;
type Compile = unsafe extern "C" fn(Program, c_int, Strings) -> u32;
type Size = unsafe extern "C" fn(Program, *mut usize) -> u32;
type Fetch = unsafe extern "C" fn(Program, *mut c_char) -> u32;
type Destroy = unsafe extern "C" fn(*mut Program) -> u32;

/// Compiles a module to a binary for one compute capability.
pub(super) fn compile(library: &Path, files: &ModuleFiles, capability: (u32, u32)) -> Result<Vec<u8>, OpenError> {
    // SAFETY: the embedder names NVIDIA's compiler; its initialisers run in every program that
    // links it.
    let library = unsafe { Library::new(library) }.map_err(|_| OpenError::NoCompiler)?;
    let mut compilation = Compilation::new(&library, files)?;
    let own = if matches!(files.prebuilt, Prebuilt::Hopper { .. }) { "a" } else { "" };
    let options = [format!("--gpu-architecture=sm_{}{}{own}", capability.0, capability.1), "-std=c++17".to_owned()];
    compilation.compile(&options.map(text))?;
    compilation.binary()
}

/// A program of the compiler; destroyed when dropped.
struct Compilation<'a> {
    library: &'a Library,
    program: Program,
    source: &'static str,
}

impl<'a> Compilation<'a> {
    fn new(library: &'a Library, files: &ModuleFiles) -> Result<Self, OpenError> {
        let (source, name) = (text(files.source), text(files.name));
        let (texts, names) = (HEADERS.map(|(_, content)| text(content)), HEADERS.map(|(name, _)| text(name)));
        let (texts, names) = (texts.each_ref().map(|text| text.as_ptr()), names.each_ref().map(|name| name.as_ptr()));
        let mut compilation = Self { library, program: std::ptr::null_mut(), source: files.name };
        let create = compilation.function::<Create>("nvrtcCreateProgram")?;
        let headers = HEADERS.len() as c_int;
        let program = &raw mut compilation.program;
        // SAFETY: the type matches nvrtc.h; strings end in a zero and outlive the call, which
        // copies them.
        let status =
            unsafe { create(program, source.as_ptr(), name.as_ptr(), headers, texts.as_ptr(), names.as_ptr()) };
        compilation.check(status)?;
        Ok(compilation)
    }

    fn compile(&mut self, options: &[CString]) -> Result<(), OpenError> {
        let options: Vec<*const c_char> = options.iter().map(|option| option.as_ptr()).collect();
        let compile = self.function::<Compile>("nvrtcCompileProgram")?;
        // SAFETY: the type matches nvrtc.h; the program was created, the options outlive the call.
        let status = unsafe { compile(self.program, options.len() as c_int, options.as_ptr()) };
        self.check(status)
    }

    fn binary(&self) -> Result<Vec<u8>, OpenError> {
        let size = self.function::<Size>("nvrtcGetCUBINSize")?;
        let mut bytes = 0_usize;
        // SAFETY: the type matches nvrtc.h; the program was compiled.
        self.check(unsafe { size(self.program, &mut bytes) })?;
        let mut binary = vec![0_u8; bytes];
        let fetch = self.function::<Fetch>("nvrtcGetCUBIN")?;
        // SAFETY: as above; it writes as many bytes as the size that it gave.
        self.check(unsafe { fetch(self.program, binary.as_mut_ptr().cast()) })?;
        Ok(binary)
    }

    fn function<F>(&self, name: &'static str) -> Result<Symbol<'a, F>, OpenError> {
        // SAFETY: each caller names a function with its type in nvrtc.h.
        unsafe { self.library.get::<F>(name) }.map_err(|_| OpenError::CompilerIncomplete { function: name })
    }

    fn check(&self, status: u32) -> Result<(), OpenError> {
        if status == 0 { Ok(()) } else { Err(OpenError::Compile { source: self.source, status }) }
    }
}

impl Drop for Compilation<'_> {
    fn drop(&mut self) {
        if self.program.is_null() {
            return;
        }
        if let Ok(destroy) = self.function::<Destroy>("nvrtcDestroyProgram") {
            // SAFETY: the type matches nvrtc.h; the program was created and is not used again. A
            // failure leaks it.
            let _ = unsafe { destroy(&mut self.program) };
        }
    }
}

/// Converts to a C string; the given texts contain no zero byte.
fn text(text: impl Into<Vec<u8>>) -> CString {
    CString::new(text).unwrap_or_default()
}
