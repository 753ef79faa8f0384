//! C and C++ programs against the libraries as they are installed, built by the system's compilers
//! with the address and undefined-behaviour sanitizers. Leaks are errors.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Runs a command to its end; it must succeed.
fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}{}",
        output.status,
        text(&output.stdout),
        text(&output.stderr)
    );
    output
}

/// The libraries that cargo built with this test, installed into a folder of their own.
fn installed() -> &'static Path {
    static FOLDER: OnceLock<tempfile::TempDir> = OnceLock::new();
    let folder = FOLDER.get_or_init(|| {
        let folder = tempfile::tempdir().expect("a folder");
        let test = std::env::current_exe().expect("this test has a path");
        let built = test.parent().expect("it is in a folder");
        let install = ["-s", "-C", root().to_str().expect("UTF-8"), "install-built"];
        let (prefix, built) = (format!("PREFIX={}", folder.path().display()), format!("BUILT={}", built.display()));
        run(Command::new("make").args(install).args([prefix, built, "DESTDIR=".to_owned()]));
        folder
    });
    folder.path()
}

/// What pkg-config says of the installed package.
fn pkg_config(arguments: &[&str]) -> Vec<String> {
    let folder = installed().join("lib/pkgconfig");
    let mut command = Command::new("pkg-config");
    command.env("PKG_CONFIG_PATH", &folder).args(arguments).arg("radixkv");
    let text = match command.output() {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            println!("skipped: pkg-config, which is not installed; its file is read instead");
            flags(&fs::read_to_string(folder.join("radixkv.pc")).expect("it is installed"), arguments)
        }
        _ => String::from_utf8(run(&mut command).stdout).expect("text"),
    };
    text.split_whitespace().map(str::to_owned).collect()
}

/// The flags that a pkg-config file has for these arguments.
fn flags(file: &str, arguments: &[&str]) -> String {
    let wanted = |key| match key {
        "Cflags" => arguments.contains(&"--cflags"),
        "Libs" => arguments.contains(&"--libs"),
        "Libs.private" => arguments.contains(&"--static"),
        _ => false,
    };
    let variables: Vec<_> = file.lines().filter_map(|line| line.split_once('=')).collect();
    let fields = file.lines().filter_map(|line| line.split_once(": ")).filter(|(key, _)| wanted(key));
    let text = fields.map(|(_, value)| value).collect::<Vec<_>>().join(" ");
    // A variable is defined by those before it.
    variables.iter().rev().fold(text, |text, (name, value)| text.replace(&format!("${{{name}}}"), value))
}

#[test]
fn the_pkg_config_file_has_the_flags() {
    let file = fs::read_to_string(installed().join("lib/pkgconfig/radixkv.pc")).expect("it is installed");
    for arguments in [&["--cflags"][..], &["--libs"], &["--static", "--libs"]] {
        let words = flags(&file, arguments).split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(pkg_config(arguments), words);
    }
}

/// How a program gets the library.
#[derive(Clone, Copy)]
enum Library {
    Shared,
    Static,
}

/// Builds a program, runs it, and returns what it printed.
fn program(source: &Path, library: Library) -> String {
    let is_c = source.extension().is_some_and(|extension| extension == "c");
    let (compiler, standard) = if is_c { ("gcc", "-std=c11") } else { ("g++", "-std=c++17") };
    let binary: PathBuf = installed().join(source.file_stem().expect("a name"));
    let mut build = Command::new(compiler);
    build.args([standard, "-g", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-pthread"]);
    build.args(["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer"]);
    build.arg(source).arg("-I").arg(root().join("tests/programs")).args(pkg_config(&["--cflags"]));
    match library {
        Library::Shared => {
            let folder = installed().join("lib");
            build.args(pkg_config(&["--libs"])).arg(format!("-Wl,-rpath,{}", folder.display()));
        }
        Library::Static => {
            let libraries = pkg_config(&["--static", "--libs"]);
            build.arg(installed().join("lib/libradixkv.a"));
            build.args(libraries.into_iter().filter(|library| library != "-lradixkv"));
        }
    }
    run(build.arg("-o").arg(&binary));
    let output = run(Command::new(binary).env("ASAN_OPTIONS", "detect_leaks=1:detect_stack_use_after_return=1"));
    String::from_utf8(output.stdout).expect("text")
}

fn passes(name: &str, library: Library) {
    let printed = program(&root().join("tests/programs").join(name), library);
    assert!(printed.trim_end().ends_with("passed, 0 failed"), "{name} printed {printed:?}");
}

// Holds: CC2.
#[test]
fn every_verb_answers_a_c_program() {
    passes("life.c", Library::Shared);
}

// Holds: CC3.
#[test]
fn misuse_is_refused_and_changes_nothing() {
    passes("misuse.c", Library::Static);
}

// Holds: CC4.
#[test]
fn threads_share_a_cache_and_no_handle_that_is_for_one() {
    passes("threads.c", Library::Static);
}

// Holds: CC2.
#[test]
fn cpp_handles_free_themselves() {
    passes("handles.cpp", Library::Shared);
}

#[test]
fn the_shared_library_exports_the_functions_of_the_header() {
    let library = installed().join("lib/libradixkv.so");
    let symbols = run(Command::new("nm").args(["--dynamic", "--defined-only", "--format=posix"]).arg(library));
    let symbols = String::from_utf8(symbols.stdout).expect("text");
    let exported: BTreeSet<_> = symbols.lines().filter_map(|line| line.split(' ').next()).collect();
    let header = fs::read_to_string(installed().join("include/radixkv.h")).expect("the header is read");
    let declared = header.lines().filter_map(|line| line.split_once('(')?.0.rsplit([' ', '*']).next());
    assert_eq!(exported, declared.filter(|name| name.starts_with("radixkv_")).collect());
}

#[test]
fn the_readme_says_what_compiles() {
    let readme = fs::read_to_string(root().join("README.md")).expect("the README is read");
    let (_, code) = readme.split_once("```c\n").expect("it has an example");
    let (code, _) = code.split_once("```").expect("the example ends");
    assert!(code.lines().filter(|line| !line.trim().is_empty()).count() <= 10, "the example is short");
    let source = installed().join("readme.c");
    let body = format!(
        "#include <radixkv.h>\n#include <stdio.h>\nint main(void) {{\n    uint32_t prompt[100] = {{0}}, \
         table[7];\n{code}    printf(\"%zu\\n\", hit);\n    return 0;\n}}\n"
    );
    fs::write(&source, body).expect("the program is written");
    assert_eq!(program(&source, Library::Shared).trim(), "96");
}
