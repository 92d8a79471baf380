//! `sluicegate top`: a running gateway live in a terminal, of the same events as the page of the admin listener.
//!
//! `view.rs` is what is known and chosen, `tables.rs` turns that into rows, `screen.rs` draws it, `source.rs` asks.

mod follow;
mod numbers;
mod screen;
mod source;
mod tables;
mod view;

use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use super::admin_target::AdminTarget;
use source::{Question, Update};
use view::{KeyResult, View};

/// Which gateway to watch. Clap shows these comments as the help text.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    whom: AdminTarget,
}

/// Watches until `q` is pressed.
///
/// # Errors
/// If the gateway to ask is not known, or the terminal fails.
pub fn run(
    arguments: &Arguments,
    file: &Path,
    _: &mut dyn Write,
    errors: &mut dyn Write,
) -> anyhow::Result<u8> {
    if !io::stdin().is_terminal() || !io::stdout().is_terminal() {
        writeln!(
            errors,
            "sluicegate: top needs a terminal; programs read /v1/live of the admin listener, or /metrics"
        )?;
        return Ok(EXIT_USAGE);
    }
    let client = arguments.whom.client(file, WITHIN, |admin| admin.token.as_deref())?;
    let (tell, told) = mpsc::channel();
    let view = View::new(client.place.to_string());
    let ask = source::start(client, &tell)?;
    std::thread::Builder::new().name("hang-up".to_owned()).spawn(end_with_terminal)?;
    let mut terminal = ratatui::try_init()?;
    let watched = watch(&mut terminal, view, &told, &ask);
    ratatui::restore();
    watched?;
    Ok(0)
}

/// Draws whatever changes, until somebody has seen enough.
fn watch(
    terminal: &mut DefaultTerminal,
    mut view: View,
    told: &Receiver<Update>,
    ask: &Sender<Question>,
) -> io::Result<()> {
    loop {
        terminal.draw(|frame| screen::draw(frame, &mut view))?;
        let mut is_changed = false;
        while !is_changed {
            while let Ok(told) = told.try_recv() {
                view.hear(told);
                is_changed = true;
            }
            if !event::poll(LOOK_EVERY)? {
                continue;
            }
            is_changed = true;
            match event::read()? {
                Event::Key(key) => match view.press(key) {
                    KeyResult::Go => {}
                    KeyResult::Ask(question) => {
                        // Ignored, because nobody hears it only if that thread has panicked, which the terminal would
                        // show.
                        let _ = ask.send(question);
                    }
                    KeyResult::Leave => return Ok(()),
                },
                Event::Resize(..)
                | Event::FocusGained
                | Event::FocusLost
                | Event::Mouse(_)
                | Event::Paste(_) => {}
            }
        }
    }
}

/// Ends the program when its terminal has gone, because who closes a terminal need not tell a program of another
/// session, and its end would be read for ever.
fn end_with_terminal() {
    let stdin = io::stdin();
    // Without flags, because nothing is waited for but the end of the terminal.
    let mut looked = [PollFd::new(&stdin, PollFlags::empty())];
    while matches!(poll(&mut looked, None), Err(Errno::INTR)) {}
    std::process::exit(EXIT_HUNG_UP);
}

/// As a shell has it for a program that SIGHUP has ended.
const EXIT_HUNG_UP: i32 = 129;
/// As clap has it for a command line that cannot be done.
const EXIT_USAGE: u8 = 2;
/// For an answer, and for the next event of a stream that sends one each second.
const WITHIN: Duration = Duration::from_secs(10);
/// How often news is looked for while no key is pressed.
const LOOK_EVERY: Duration = Duration::from_millis(50);
