//! Names the shared library as it is installed. Before 1.0 each minor version has an interface of
//! its own.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let of = |name: &str| std::env::var(name).expect("cargo sets it");
    let (major, minor) = (of("CARGO_PKG_VERSION_MAJOR"), of("CARGO_PKG_VERSION_MINOR"));
    let abi = if major == "0" { format!("{major}.{minor}") } else { major };
    if of("CARGO_CFG_TARGET_OS") == "linux" {
        println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libradixkv.so.{abi}");
    }
}
