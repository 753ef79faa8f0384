use super::*;
use crate::sync::thread;

#[test]
fn an_abort_waits_for_another_threads_publishing_and_for_no_other() {
    let abort = AbortState::new();
    let publishing = abort.publishing().expect("not aborted");
    abort.abort();
    assert!(abort.is_aborted() && abort.publishing().is_none());
    thread::scope(|scope| {
        let aborting = scope.spawn(|| abort.abort());
        thread::sleep(std::time::Duration::from_millis(10));
        assert!(!aborting.is_finished(), "it is still being published");
        drop(publishing);
    });
}
