//! The committed header is the one that the sources give. `RADIXKV_WRITE_HEADER=1 cargo test -p
//! radixkv-c --test header` writes it.

use std::fs;
use std::path::Path;

/// The order of the header.
const SOURCES: [&str; 13] = [
    "status",
    "builder",
    "cache",
    "settings",
    "namespace",
    "session",
    "lease",
    "weak_lease",
    "reservation",
    "external",
    "stats",
    "events",
    "evicted",
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn generated() -> String {
    let config = cbindgen::Config::from_file(root().join("cbindgen.toml")).expect("the configuration is read");
    let builder = SOURCES.iter().fold(cbindgen::Builder::new().with_config(config), |builder, source| {
        builder.with_src(root().join(format!("src/{source}.rs")))
    });
    let mut header = Vec::new();
    builder.generate().expect("the sources are read").write(&mut header);
    let header = String::from_utf8(header).expect("a header is text");
    // Handles are opaque: a reference to one is no promise that nothing changes.
    let handles = header.lines().filter_map(|line| line.strip_prefix("typedef struct radixkv_")?.split(' ').next());
    handles.fold(header.clone(), |text, handle| {
        text.replace(&format!("const radixkv_{handle} *"), &format!("radixkv_{handle} *"))
    })
}

// Holds: CC1.
#[test]
fn the_header_is_what_the_sources_say() {
    let (path, generated) = (root().join("include/radixkv.h"), generated());
    if std::env::var_os("RADIXKV_WRITE_HEADER").is_some() {
        fs::write(&path, &generated).expect("the header is written");
    }
    let committed = fs::read_to_string(&path).expect("the header is read");
    assert!(committed == generated, "include/radixkv.h differs: run this test with RADIXKV_WRITE_HEADER=1");
}

// Holds: CC1.
#[test]
fn every_function_says_which_threads_may_call_it() {
    let header = generated();
    let (_, functions) = header.split_once("extern \"C\" {").expect("the functions come last");
    let mut count = 0;
    for paragraph in
        functions.split("\n\n").filter(|paragraph| paragraph.contains("radixkv_") && paragraph.contains(");"))
    {
        count += 1;
        assert!(paragraph.contains("// Threads: "), "{paragraph}");
    }
    let exported: usize = SOURCES
        .iter()
        .map(|source| fs::read_to_string(root().join(format!("src/{source}.rs"))).expect("a source"))
        .map(|text| text.matches("#[unsafe(no_mangle)]").count())
        .sum();
    assert_eq!(count, exported, "all exported functions are in the header");
}
