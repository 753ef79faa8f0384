//! Output never destroys existing files: neither the trace, nor a complete file of an earlier run.

use std::{
    collections::BTreeMap,
    fs::{self, File, Permissions},
    os::unix::fs::{MetadataExt, PermissionsExt, symlink},
    path::Path,
    process::Command,
};

use super::{ROWS, Scratch, complaint, run, run_in_shell, said};

const OLDER: &str = "older\n";
const CSV: &str = "request,prompt_tokens,prefix_hit_len,computed_tokens,timestamp,namespace,miss_reason,queue_wait\n\
    0,70,0,70,0,,new,\n2,64,64,0,2,,,\n1,40,32,8,3,,partial,\n";
const AMPLE: [&str; 2] = ["--capacity", "100"];

impl Scratch {
    /// Everything in the folder: files with their contents, links with their targets.
    fn contents(&self) -> BTreeMap<String, Vec<u8>> {
        let entries = fs::read_dir(&self.0).expect("a folder").map(|entry| entry.expect("an entry"));
        let content = |path: &Path| match fs::read_link(path) {
            Ok(target) => target.into_os_string().into_encoded_bytes(),
            Err(_) => fs::read(path).unwrap_or_default(),
        };
        entries.map(|entry| (entry.file_name().to_string_lossy().into_owned(), content(&entry.path()))).collect()
    }

    fn text(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).expect("a file")
    }
}

fn name(path: &Path) -> &str {
    path.to_str().expect("a name")
}

fn many_rows() -> String {
    let row =
        |at: usize| format!("{{\"timestamp\": {at}, \"input_length\": 70, \"output_length\": 5, \"hash_ids\": [1]}}\n");
    (0..2000).map(row).collect()
}

// Holds: RP4.
#[test]
fn the_trace_is_never_written_to() {
    let scratch = Scratch::new("trace-as-output");
    let trace = scratch.file("t.jsonl", ROWS);
    fs::hard_link(&trace, scratch.path("hard")).expect("a link");
    symlink("t.jsonl", scratch.path("soft")).expect("a link");
    symlink("soft", scratch.path("softer")).expect("a link");
    symlink(".", scratch.path("same")).expect("a link");
    fs::create_dir_all(scratch.path("folder")).expect("a folder");
    let before = scratch.contents();
    for output in ["t.jsonl", "./t.jsonl", "folder/../t.jsonl", "same/t.jsonl", "hard", "soft", "softer"] {
        for input in ["t.jsonl", "soft", "hard"] {
            let output = scratch.path(output);
            let said = complaint(Some(&scratch.path(input)), &["--requests", name(&output)]);
            assert!(said.contains("not written: it is the trace"), "{said}");
            assert!(scratch.contents() == before, "{}", output.display());
        }
    }
    // The same from inside the folder: the path then has no folder part.
    let mut command = Command::new(env!("CARGO_BIN_EXE_radixkv"));
    let inside =
        command.current_dir(&scratch.0).args(["replay", "t.jsonl", "--requests", "soft"]).output().expect("runs");
    assert_eq!(inside.status.code(), Some(2), "{}", said(&inside));
    let appended = run_in_shell("", &format!(">> {}", name(&trace)), &trace, &[]);
    assert_eq!(appended.status.code(), Some(2), "{}", said(&appended));
    assert!(scratch.contents() == before);
}

// Holds: RP4.
#[test]
fn a_failed_run_leaves_an_older_file_as_it_was() {
    let scratch = Scratch::new("older-output");
    let good = scratch.file("good.jsonl", ROWS);
    let bad = scratch.file("bad.jsonl", format!("{ROWS}{{\"timestamp\": 9}}\n"));
    let csv = scratch.file("r.csv", OLDER);
    let before = scratch.contents();
    let cases: [(&Path, &[&str]); 4] = [
        (&bad, &[]),
        (&scratch.path("missing.jsonl"), &[]),
        (&good, &["--capacity", "18446744073709551615"]),
        (&good, &["--block-size", "4294967296"]),
    ];
    for (trace, options) in cases {
        complaint(Some(trace), &[options, &["--requests", name(&csv)]].concat());
        assert!(scratch.contents() == before, "{options:?}");
    }
    let unsaid = run_in_shell("", "> /dev/full", &good, &["--requests", name(&csv)]);
    assert_eq!(unsaid.status.code(), Some(2), "{}", said(&unsaid));
    assert!(scratch.contents() == before);
    let new = scratch.path("new.csv");
    complaint(Some(&bad), &["--requests", name(&new)]);
    assert!(scratch.contents() == before, "nothing new either");
}

// Holds: RP4.
#[test]
fn a_disk_that_is_full_leaves_an_older_file_as_it_was() {
    let scratch = Scratch::new("full-disk");
    let trace = scratch.file("t.jsonl", many_rows());
    let csv = scratch.file("r.csv", OLDER);
    let before = scratch.contents();
    // A file size limit of a block or two; the rows take some thirty thousand bytes.
    let output = run_in_shell("ulimit -f 2;", "", &trace, &["--requests", name(&csv)]);
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    assert!(said(&output).contains("r.csv: cannot be written"), "{}", said(&output));
    assert!(output.stdout.is_empty());
    assert!(scratch.contents() == before);
    let full = complaint(Some(&trace), &["--requests", "/dev/full"]);
    assert!(full.contains("/dev/full: cannot be written"), "{full}");
}

// Holds: RP5.
#[test]
fn permissions_and_links_stay() {
    let scratch = Scratch::new("links");
    let trace = scratch.file("t.jsonl", ROWS);
    scratch.file("r.csv", OLDER);
    for mode in [0o640, 0o604, 0o777] {
        fs::set_permissions(scratch.path("r.csv"), Permissions::from_mode(mode)).expect("permissions");
        let _ = fs::remove_file(scratch.path("link"));
        symlink("r.csv", scratch.path("link")).expect("a link");
        assert!(
            run(Some(&trace), &[&AMPLE[..], &["--requests", name(&scratch.path("link"))]].concat()).status.success()
        );
        assert_eq!(scratch.text("r.csv"), CSV);
        assert_eq!(fs::metadata(scratch.path("r.csv")).expect("a file").mode() & 0o7777, mode);
        assert_eq!(fs::read_link(scratch.path("link")).expect("a link"), Path::new("r.csv"));
    }
    symlink("made.csv", scratch.path("ahead")).expect("a link");
    assert!(run(Some(&trace), &[&AMPLE[..], &["--requests", name(&scratch.path("ahead"))]].concat()).status.success());
    assert_eq!(scratch.text("made.csv"), CSV);
    assert_eq!(fs::read_link(scratch.path("ahead")).expect("a link"), Path::new("made.csv"));
    let usual = File::create(scratch.path("usual")).and_then(|file| file.metadata()).expect("a file").mode();
    assert_eq!(fs::metadata(scratch.path("made.csv")).expect("a file").mode(), usual);
    assert_eq!(scratch.contents().len(), 6, "{:?}", scratch.contents().keys());
}

// Holds: RP5.
#[test]
fn pipes_devices_and_descriptors_are_written_as_they_are() {
    let scratch = Scratch::new("descriptors");
    let trace = scratch.file("t.jsonl", ROWS);
    let to = |output: &str, redirection: &str| {
        let output = run_in_shell("", redirection, &trace, &[&AMPLE[..], &["--requests", output]].concat());
        assert_eq!(output.status.code(), Some(0), "{}", said(&output));
        String::from_utf8(output.stdout).expect("text")
    };
    let piped = to("/dev/stdout", "");
    assert!(piped.starts_with(CSV) && piped.contains("hit tokens"), "{piped}");
    to("/dev/stdout", &format!("> {}", name(&scratch.path("all.txt"))));
    let all = scratch.text("all.txt");
    assert!(all.starts_with(CSV) && all.contains("hit tokens"), "{all}");
    // An open descriptor still refers to the file after the run.
    let third = scratch.path("third.txt");
    let script = "exec 3>> \"$0\"; \"$@\" > /dev/null 2>&1; echo after >&3";
    let mut shell = Command::new("sh");
    shell.args(["-c", script, name(&third), env!("CARGO_BIN_EXE_radixkv"), "replay"]).arg(&trace);
    assert!(shell.args(AMPLE).args(["--requests", "/dev/fd/3"]).status().expect("a shell").success());
    assert!(scratch.text("third.txt").ends_with("after\n"), "{}", scratch.text("third.txt"));
    to("/dev/null", "");
    assert!(!fs::metadata("/dev/null").expect("a device").is_file());
    assert_eq!(scratch.contents().len(), 3);
}

#[test]
fn what_is_no_file_is_refused_before_the_replay() {
    let scratch = Scratch::new("no-file");
    let trace = scratch.file("t.jsonl", ROWS);
    symlink("round", scratch.path("round")).expect("a link");
    fs::create_dir_all(scratch.path("folder")).expect("a folder");
    let before = scratch.contents();
    for output in [".", "folder", "folder/", "folder/..", "none/r.csv", "t.jsonl/r.csv", "new/", "round"] {
        let said = complaint(Some(&trace), &["--requests", &format!("{}/{output}", name(&scratch.0))]);
        assert!(said.contains("cannot be written"), "{output}: {said}");
        assert!(scratch.contents() == before, "{output}");
    }
    complaint(Some(&trace), &["--requests", ""]);
}
