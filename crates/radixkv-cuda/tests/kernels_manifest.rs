//! The checked-in kernels are those of the checked-in sources: `kernels/prebuilt/MANIFEST` names
//! every source and every built file with its digest. If this fails, `kernels/build.sh` builds them
//! anew.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

const MODULES: [&str; 10] = [
    "append",
    "bandwidth",
    "cascade",
    "compare_keys",
    "copy_blocks",
    "decode",
    "extend",
    "latent",
    "merge",
    "selftest",
];
const TARGETS: [&str; 3] = ["compute_80.ptx", "sm_80.cubin", "sm_90.cubin"];
/// With instructions that only compute capability 9.0 has.
const HOPPER: [&str; 1] = ["extend_wgmma.sm_90a.cubin"];

fn kernels() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels")
}

fn digest(path: &Path) -> String {
    let bytes = fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Lines `kind digest name` of the manifest, by name.
fn entries(kind: &str) -> BTreeMap<String, String> {
    let manifest = fs::read_to_string(kernels().join("prebuilt/MANIFEST")).expect("kernels/prebuilt/MANIFEST");
    manifest
        .lines()
        .filter_map(|line| {
            let mut words = line.split(' ');
            (words.next() == Some(kind)).then(|| {
                let (digest, name) = (words.next().expect("a digest"), words.next().expect("a name"));
                (name.to_owned(), digest.to_owned())
            })
        })
        .collect()
}

/// Names of the files of a directory that end in one of `endings`.
fn files(directory: &Path, endings: &[&str]) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(directory)
        .expect("the directory can be read")
        .map(|entry| entry.expect("an entry").file_name().into_string().expect("a UTF-8 name"))
        .filter(|name| endings.iter().any(|ending| name.ends_with(ending)))
        .collect();
    names.sort();
    names
}

#[test]
fn sources_are_those_that_were_built() {
    let listed = entries("source");
    assert_eq!(listed.keys().cloned().collect::<Vec<_>>(), files(&kernels(), &[".cu", ".cuh"]));
    for (name, expected) in listed {
        assert_eq!(digest(&kernels().join(&name)), expected, "{name} has changed: run kernels/build.sh");
    }
}

#[test]
fn built_files_are_those_of_the_manifest() {
    let listed = entries("built");
    let directory = kernels().join("prebuilt");
    assert_eq!(listed.keys().cloned().collect::<Vec<_>>(), files(&directory, &[".cubin", ".ptx"]));
    let mut wanted: Vec<String> =
        MODULES.iter().flat_map(|module| TARGETS.iter().map(move |target| format!("{module}.{target}"))).collect();
    wanted.extend(HOPPER.map(str::to_owned));
    wanted.sort();
    assert_eq!(listed.keys().cloned().collect::<Vec<_>>(), wanted);
    for (name, expected) in listed {
        assert_eq!(digest(&directory.join(&name)), expected, "{name} is not what was built: run kernels/build.sh");
    }
}

#[test]
fn the_compiler_is_the_pinned_one() {
    let manifest = fs::read_to_string(kernels().join("prebuilt/MANIFEST")).expect("kernels/prebuilt/MANIFEST");
    let requirements = fs::read_to_string(kernels().join("requirements.txt")).expect("kernels/requirements.txt");
    let built = manifest.lines().next().and_then(|line| line.strip_prefix("compiler NVRTC ")).expect("a compiler line");
    let release = built.split(' ').next().expect("a release");
    assert!(requirements.contains(&format!("nvrtc-cu12=={release} ")), "built by {release}, another is pinned");
}

/// A cubin is an ELF file of its architecture; PTX is text that ends with a line feed and holds no
/// NUL.
#[test]
fn images_are_of_their_kind() {
    for module in MODULES {
        for (target, architecture) in [("sm_80", 80), ("sm_90", 90)] {
            let cubin = fs::read(kernels().join(format!("prebuilt/{module}.{target}.cubin"))).expect("a cubin");
            assert_eq!(&cubin[..4], b"\x7fELF");
            assert_eq!(cubin[48], architecture, "{module}.{target} is of another architecture");
        }
        let ptx = fs::read(kernels().join(format!("prebuilt/{module}.compute_80.ptx"))).expect("PTX");
        let text = String::from_utf8(ptx).expect("PTX is text");
        assert!(text.contains(".target sm_80") && text.ends_with('\n') && !text.contains('\0'));
    }
    for name in HOPPER {
        let cubin = fs::read(kernels().join("prebuilt").join(name)).expect("a cubin");
        assert_eq!((&cubin[..4], cubin[48]), (&b"\x7fELF"[..], 90), "{name} is of another architecture");
    }
}
