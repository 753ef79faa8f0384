//! Runs the commands `radixkv region` and `radixkv top --region`.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use radixkv_host::radixkv_tiers::radixkv_region::{DigestKey, DigestLayout, DigestPut, DigestRegion, Namespace};
use serde_json::Value;

const BYTES: usize = 1024;

/// The path of a region, whose file is removed on drop.
struct Place(PathBuf);

impl Place {
    fn new(test: &str) -> Self {
        let path = std::env::temp_dir().join(format!("radixkv-region-cli-{test}-{}", std::process::id()));
        let _ = fs::remove_file(&path);
        Self(path)
    }

    fn run(&self, words: &str) -> Output {
        let (verb, options) = words.split_once(' ').unwrap_or((words, ""));
        radixkv(["region", verb].into_iter().map(str::to_owned).chain([self.path()]).chain(words_of(options)))
    }

    fn path(&self) -> String {
        self.0.to_str().expect("text").to_owned()
    }

    fn inspect(&self) -> Value {
        let output = self.run("inspect --json");
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice(&output.stdout).expect("JSON")
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn words_of(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

fn radixkv(arguments: impl IntoIterator<Item = String>) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_radixkv"));
    command.args(arguments).env("COLUMNS", "200").env_remove("TERM").output().expect("it runs")
}

fn said(output: &Output) -> String {
    [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text)).concat()
}

/// Stores blocks in a namespace, looks each of them up, and looks up as many that are absent.
fn fill(path: &Path, name: &str, blocks: u8) -> Arc<DigestRegion> {
    let region = Arc::new(DigestRegion::open_or_create(path, &DigestLayout::new(BYTES, 64)).expect("opened"));
    let space = region.namespace(&Namespace::new(name, 16, BYTES).model("a model").dtype("bf16")).expect("opened");
    space.set_quota(40);
    for number in 0..blocks {
        let keys = [DigestKey::new(&[number; 16]).expect("a digest")];
        assert_eq!(space.put_from(&keys, &[&[number; BYTES]], None), Ok(vec![DigestPut::Stored]));
        let mut found = [0; BYTES];
        assert!(space.get_into(&keys, &mut [&mut found]).expect("a batch")[0].is_hit());
        let absent = [DigestKey::new(&[number + 100; 16]).expect("a digest")];
        assert!(!space.get_into(&absent, &mut [&mut found]).expect("a batch")[0].is_hit());
    }
    region
}

/// Run as a child process, it holds a region open until it is killed; otherwise it does nothing.
#[test]
fn holder() {
    let Some(path) = std::env::var_os("RADIXKV_HELD_REGION") else { return };
    let region = fill(Path::new(&path), "held", 3);
    let space =
        Arc::new(region.namespace(&Namespace::new("held", 16, BYTES).model("a model").dtype("bf16")).expect("opened"));
    let _room = space.reserve(&DigestKey::new(&[9; 16]).expect("a digest"), None);
    fs::write(Path::new(&path).with_extension("there"), "").expect("written");
    thread::sleep(Duration::from_secs(20));
}

// Holds: RG19.
#[test]
fn a_region_is_created_inspected_and_removed() {
    let place = Place::new("created");
    let created = place.run("create --entry-bytes 1KiB --capacity 64");
    assert!(created.status.success() && said(&created).contains("64 blocks of up to 1.0 KiB"), "{}", said(&created));
    assert_eq!(place.run("create --entry-bytes 1KiB --capacity 64").status.code(), Some(2), "it is there");
    let region = fill(&place.0, "tenant", 5);
    let census = place.inspect();
    let of = |path: &str| census.pointer(path).unwrap_or(&Value::Null);
    assert_eq!(
        (of("/capacity"), of("/blocks"), of("/free"), of("/bytes")),
        (&64.into(), &5.into(), &59.into(), &5120.into())
    );
    assert_eq!((of("/namespaces/0/name"), of("/namespaces/0/model")), (&"tenant".into(), &"a model".into()));
    assert_eq!((of("/namespaces/0/blocks"), of("/namespaces/0/quota")), (&5.into(), &40.into()));
    assert!(of("/namespaces/0/oldest_seconds").as_f64().is_some_and(|seconds| seconds < 60.0));
    let pid = std::process::id();
    assert_eq!((of("/processes/0/pid"), of("/processes/0/state")), (&pid.into(), &"alive".into()));
    assert_eq!((of("/processes/0/hit_rate"), of("/processes/0/stored")), (&0.5.into(), &5.into()));
    assert_eq!(of("/processes/1"), &Value::Null, "who looks is no process of the region");
    for text in [said(&place.run("inspect")), said(&radixkv(words_of(&format!("top --region {}", place.path()))))] {
        for what in ["tenant", "a model", "bf16", "50.00 %", "5.0 KiB", &pid.to_string(), "alive"] {
            assert!(text.contains(what), "{what} is not in\n{text}");
        }
    }
    let refused = place.run("remove");
    assert_eq!(refused.status.code(), Some(2));
    assert!(said(&refused).contains(&format!("open in process {pid}")) && place.0.exists(), "{}", said(&refused));
    drop(region);
    assert!(place.run("remove").status.success() && !place.0.exists());
}

// Holds: RG19.
#[test]
fn dead_owners_are_seen_and_what_they_held_is_recovered() {
    let place = Place::new("dead");
    let mut holder = Command::new(std::env::current_exe().expect("this program"));
    holder.args(["--exact", "holder"]).env("RADIXKV_HELD_REGION", &place.0);
    let mut holder = holder.spawn().expect("started");
    let there = place.0.with_extension("there");
    while !there.exists() {
        assert!(holder.try_wait().expect("asked").is_none(), "the holder has ended");
        thread::sleep(Duration::from_millis(2));
    }
    let _ = fs::remove_file(there);
    assert_eq!((&place.inspect()["dead_processes"], &place.inspect()["in_flight"]), (&0.into(), &1.into()));
    holder.kill().expect("killed");
    holder.wait().expect("waited for");
    let census = place.inspect();
    assert_eq!((&census["dead_processes"], &census["processes"][0]["state"]), (&1.into(), &"dead".into()));
    assert_eq!((&census["processes"][0]["blocks"], &census["processes"][0]["in_flight"]), (&3.into(), &1.into()));
    // Inspecting changed nothing; trimming recovers the blocks.
    let trimmed = place.run("trim --older-than 1h");
    assert_eq!(said(&trimmed), "removed 0 blocks, 3 are left\n");
    let census = place.inspect();
    assert_eq!(
        (&census["dead_processes"], &census["in_flight"], &census["ownerless_blocks"]),
        (&0.into(), &0.into(), &3.into())
    );
    assert!(place.run("remove").status.success());
}

// Holds: RG19.
#[test]
fn blocks_are_trimmed_and_damage_is_found() {
    let place = Place::new("trimmed");
    drop((fill(&place.0, "one", 5), fill(&place.0, "two", 6)));
    let none = place.run("trim --older-than 0s --namespace three");
    assert_eq!(none.status.code(), Some(2));
    assert!(said(&none).contains(r#"no namespace "three"; it has "one", "two""#), "{}", said(&none));
    assert_eq!(said(&place.run("trim --older-than 0s --namespace one")), "removed 5 blocks, 6 are left\n");
    let verified = place.run("verify");
    assert!(verified.status.success() && said(&verified).contains("right: 6\n"), "{}", said(&verified));
    let mut content = fs::read(&place.0).expect("read");
    let end = content.len();
    let at = (0..end).rev().find(|at| content[*at] == 4).expect("a byte of block 4");
    content[at] ^= 1;
    fs::write(&place.0, content).expect("written");
    let verified = place.run("verify");
    assert_eq!(verified.status.code(), Some(1));
    assert_eq!(said(&verified), "right: 5\nwithout a checksum: 0\ndamaged and removed: 1\n");
    assert_eq!(said(&place.run("trim --older-than 0s")), "removed 5 blocks, 0 are left\n");
}

/// The words of the counters of the first two processes, and of the numbers of each namespace.
fn counters(content: &[u8]) -> Vec<usize> {
    const SLOTS: usize = 512;
    const NAMESPACES: usize = 1032;
    const NAMESPACE: usize = 128;
    let is_used = |start: &usize| content[8 * start..][..8] != [0; 8];
    let namespaces = (0..256).map(|place| NAMESPACES + place * NAMESPACE).filter(is_used);
    let numbers = namespaces.flat_map(|start| start + 3..start + 16);
    (SLOTS + 1..SLOTS + 8).chain(SLOTS + 9..SLOTS + 16).chain(numbers).collect()
}

// Holds: RG19.
#[test]
fn counters_of_any_value_are_shown() {
    let (place, damaged) = (Place::new("counters"), Place::new("damaged"));
    let regions = [fill(&place.0, "one", 5), fill(&place.0, "two", 6)];
    let whole = fs::read(&place.0).expect("read");
    let counters = counters(&whole);
    assert_eq!(counters.len(), 2 * 7 + 2 * 13);
    for words in counters.iter().map(std::slice::from_ref).chain([&counters[..]]) {
        let mut content = whole.clone();
        words.iter().for_each(|word| content[8 * word..][..8].fill(0xff));
        fs::write(&damaged.0, &content).expect("written");
        let top = radixkv(words_of(&format!("top --region {}", damaged.path())));
        for shown in [top, damaged.run("inspect"), damaged.run("inspect --json")] {
            assert!(shown.status.success(), "words {words:?}: {}", said(&shown));
        }
        let verified = damaged.run("verify");
        assert!(matches!(verified.status.code(), Some(0 | 1)), "words {words:?}: {}", said(&verified));
    }
    drop(regions);
}

/// A `create` that is killed leaves a file with all the memory beside the region's, and perhaps the
/// region.
// Holds: RG5.
#[test]
fn what_a_killed_create_left_is_removed() {
    let place = Place::new("unfinished");
    let name = place.0.file_name().expect("a name").to_str().expect("text");
    let unfinished = place.0.with_file_name(format!(".{name}.new"));
    fs::write(&unfinished, vec![0; 4096]).expect("written");
    let removed = place.run("remove");
    assert!(removed.status.success() && said(&removed).contains("left beside"), "{}", said(&removed));
    assert!(!unfinished.exists() && place.run("remove").status.code() == Some(2));
    let region = fill(&place.0, "one", 1);
    fs::hard_link(&place.0, &unfinished).expect("linked");
    // Its maker lives, so the file beside the region is not left over.
    assert_eq!((place.run("remove").status.code(), place.0.exists(), unfinished.exists()), (Some(2), true, true));
    drop(region);
    let removed = place.run("remove");
    assert!(removed.status.success() && !place.0.exists(), "{}", said(&removed));
    // Until a process that another test starts runs its own program, it has a copy of the lock that
    // tells whether the maker lives: then a later call removes the file beside the region.
    let until = Instant::now() + Duration::from_secs(10);
    while unfinished.exists() {
        let again = place.run("remove");
        assert!(Instant::now() < until, "{}", said(&again));
    }
    // If the unfinished file cannot be removed, the region stays.
    drop(fill(&place.0, "one", 1));
    fs::create_dir(&unfinished).expect("created");
    assert_eq!((place.run("remove").status.code(), place.0.exists()), (Some(2), true));
    fs::remove_dir(&unfinished).expect("removed");
}

// Holds: RG19.
#[test]
fn what_is_no_region_is_refused_and_left() {
    let place = Place::new("none");
    for verb in ["inspect", "verify", "remove", "trim --older-than 1s"] {
        let absent = place.run(verb);
        assert!(absent.status.code() == Some(2) && said(&absent).contains(&place.path()), "{}", said(&absent));
    }
    fs::write(&place.0, vec![7; 100_000]).expect("written");
    for verb in ["inspect", "verify", "remove --force", "trim --older-than 1s"] {
        let other = place.run(verb);
        assert!(other.status.code() == Some(2) && said(&other).contains("not a region"), "{}", said(&other));
    }
    assert_eq!(fs::read(&place.0).expect("read"), vec![7; 100_000]);
    let wrong = place.run("trim --older-than 5");
    assert!(wrong.status.code() == Some(2) && said(&wrong).contains("not a time"), "{}", said(&wrong));
}
