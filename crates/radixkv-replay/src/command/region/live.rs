//! `radixkv top --region`: shows a region in the terminal.

use std::{error::Error, process::ExitCode, time::Duration};

use ratatui::{Frame, text::Text, widgets::Paragraph};

use super::{Name, census::Shown, print};
use crate::{
    console,
    screen::Screen,
    status::AT_FAULT,
    top::{is_drawn_on, watch::watch},
};

/// Time between two updates, each of which scans all entries.
const PERIOD: Duration = Duration::from_millis(500);

/// Shows a region in a terminal until a key ends it; prints it as text if there is no terminal.
pub(crate) fn top(name: &Name, screen: &Screen) -> ExitCode {
    show(name, screen).unwrap_or_else(|error| {
        console::say(format_args!("radixkv: {error}"));
        ExitCode::from(AT_FAULT)
    })
}

fn show(name: &Name, screen: &Screen) -> Result<ExitCode, Box<dyn Error>> {
    let (region, observer) = (name.shown(), name.observe()?);
    let first = Shown::of(&region, &observer.census());
    if !is_drawn_on() {
        return print(&first.text(screen));
    }
    let next = move || Some(Shown::of(&region, &observer.census()));
    watch(PERIOD, next, first, draw).map_err(|error| format!("the terminal failed: {error}"))?;
    Ok(ExitCode::SUCCESS)
}

fn draw(frame: &mut Frame<'_>, shown: &Shown) {
    let text = shown.text(&Screen::plain(frame.area().width.into()));
    frame.render_widget(Paragraph::new(Text::raw(format!("{text}\nq quits"))), frame.area());
}
