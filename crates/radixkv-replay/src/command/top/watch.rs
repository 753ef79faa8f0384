//! Shows states in a terminal, until a key or a signal ends it, or the terminal is gone.
//!
//! Other threads read keys and states. So an address that does not respond cannot keep the loop
//! below from ending; nor can a closed terminal, which the reader of keys never reports.

use std::{
    io,
    mem::ManuallyDrop,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
        mpsc::{self, RecvTimeoutError, Sender},
    },
    thread,
    time::{Duration, Instant},
};

use ratatui::crossterm::{
    event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers},
    terminal::disable_raw_mode,
};

use ratatui::Frame;

/// Time between two checks of signals and of the terminal, which fails to draw once it is gone.
const TICK: Duration = Duration::from_millis(100);
/// After a signal, how long to wait for a terminal that accepts no output.
const GRACE: Duration = Duration::from_secs(1);

/// A message from the reading threads.
enum News<S> {
    Input(io::Result<Event>),
    State(Box<S>),
}

/// Shows `state`, and then the states that `read` returns once per `period`. Restores the terminal
/// afterwards.
///
/// # Errors
///
/// Fails if the terminal fails, or is gone.
pub(crate) fn watch<S: Send + 'static>(
    period: Duration,
    read: impl FnMut() -> Option<S> + Send + 'static,
    state: S,
    draw: impl Fn(&mut Frame<'_>, &S) + Send + 'static,
) -> io::Result<()> {
    let stop = stop()?;
    // Not dropped: a drop would print an error to a terminal that is gone.
    let mut terminal = ManuallyDrop::new(ratatui::try_init()?);
    let (end, ended) = mpsc::channel();
    thread::spawn({
        let stop = Arc::clone(&stop);
        move || {
            let (tell, news) = mpsc::channel();
            thread::spawn({
                let tell = tell.clone();
                move || read_input(&tell)
            });
            thread::spawn(move || read_states(period, read, &tell));
            let mut state = state;
            let shown = show(&mut state, &news, &stop, |state| terminal.draw(|frame| draw(frame, state)).map(drop));
            let restored = ratatui::try_restore().and(terminal.show_cursor());
            let _ = end.send(shown.and(restored));
        }
    });
    let mut since = None;
    loop {
        match ended.recv_timeout(TICK) {
            Ok(shown) => return shown,
            Err(RecvTimeoutError::Disconnected) => return ratatui::try_restore(),
            Err(RecvTimeoutError::Timeout) => {}
        }
        // Relaxed: the flag publishes no other data.
        if stop.load(Relaxed) && since.get_or_insert_with(Instant::now).elapsed() >= GRACE {
            return disable_raw_mode();
        }
    }
}

/// A flag that the terminating signals set.
fn stop() -> io::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    #[cfg(unix)]
    for signal in signal_hook::consts::TERM_SIGNALS.iter().chain([&signal_hook::consts::SIGHUP]) {
        signal_hook::flag::register(*signal, Arc::clone(&stop))?;
    }
    Ok(stop)
}

/// Draws the state and its updates, until a key, `stop` or an error ends it.
fn show<S>(
    state: &mut S,
    news: &mpsc::Receiver<News<S>>,
    stop: &AtomicBool,
    mut draw: impl FnMut(&S) -> io::Result<()>,
) -> io::Result<()> {
    // Relaxed: the flag publishes no other data.
    while !stop.load(Relaxed) {
        draw(state)?;
        match news.recv_timeout(TICK) {
            Ok(News::Input(Ok(Event::Key(key)))) if ends(key) => return Ok(()),
            Ok(News::Input(Err(error))) => return Err(error),
            Ok(News::State(next)) => *state = *next,
            // The terminal was resized, or nothing is new.
            Ok(News::Input(Ok(_))) | Err(_) => {}
        }
    }
    Ok(())
}

/// Sends keys and resizes until the receiver is dropped.
fn read_input<S>(tell: &Sender<News<S>>) {
    loop {
        let read = event::read();
        let is_over = read.is_err();
        if tell.send(News::Input(read)).is_err() || is_over {
            return;
        }
    }
}

/// Sends states until the receiver is dropped. If a file is gone or malformed, or metrics are no
/// longer served, the last state stays on the screen.
fn read_states<S>(period: Duration, mut read: impl FnMut() -> Option<S>, tell: &Sender<News<S>>) {
    loop {
        thread::sleep(period);
        if let Some(next) = read()
            && tell.send(News::State(Box::new(next))).is_err()
        {
            return;
        }
    }
}

fn ends(key: KeyEvent) -> bool {
    let is_interrupt = key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
    key.kind != KeyEventKind::Release && (is_interrupt || matches!(key.code, KeyCode::Char('q') | KeyCode::Esc))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::State;

    #[test]
    fn q_escape_and_an_interrupt_end_it() {
        let key = |code, modifiers| ends(KeyEvent::new(code, modifiers));
        assert!(key(KeyCode::Char('q'), KeyModifiers::NONE) && key(KeyCode::Esc, KeyModifiers::NONE));
        assert!(key(KeyCode::Char('c'), KeyModifiers::CONTROL));
        assert!(!key(KeyCode::Char('c'), KeyModifiers::NONE) && !key(KeyCode::Enter, KeyModifiers::NONE));
    }

    // Holds: RP21.
    #[test]
    fn a_key_a_signal_or_a_terminal_that_has_gone_ends_it() {
        let (tell, news) = mpsc::channel();
        let stop = AtomicBool::new(false);
        let mut state = State::default();
        tell.send(News::State(Box::new(State { requests: 7, ..State::default() }))).expect("a listener");
        tell.send(News::Input(Ok(Event::Key(KeyCode::Char('q').into())))).expect("a listener");
        let mut drawn = Vec::new();
        let ended = show(&mut state, &news, &stop, |state| {
            drawn.push(state.requests);
            Ok(())
        });
        assert!(ended.is_ok() && drawn == [0, 7], "{drawn:?}");
        // No key is sent from here on.
        let gone = show(&mut state, &news, &stop, |_| Err(io::Error::other("gone")));
        assert_eq!(gone.expect_err("gone").to_string(), "gone");
        let refused = tell.send(News::Input(Err(io::Error::other("no input"))));
        assert!(refused.is_ok() && show(&mut state, &news, &stop, |_| Ok(())).is_err());
        stop.store(true, Relaxed);
        assert!(show(&mut state, &news, &stop, |_| Ok(())).is_ok());
    }
}
