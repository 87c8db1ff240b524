// SPDX-License-Identifier: GPL-2.0

//! The terminal, which is as it was before when this is dropped.

use crate::sys;
use anyhow::Result;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::{Hide, Show};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use ratatui::layout::Rect;
use ratatui::{Frame, Terminal, TerminalOptions, Viewport};
use signal_hook::consts::SIGTSTP;
use std::io::{BufWriter, Stdout, Write, stdout};
use std::sync::Once;

/// Size of a terminal that does not tell its own.
const SIZE: (u16, u16) = (80, 24);
/// Room for a screen, which is written at once.
const ROOM: usize = 64 * 1024;

/// The terminal, in raw mode and with another screen than that of the shell.
pub(super) struct Tty {
    terminal: Terminal<CrosstermBackend<BufWriter<Stdout>>>,
}

impl Tty {
    /// Takes the terminal. A panic gives it back before its message is printed.
    ///
    /// # Errors
    ///
    /// It does not let itself be set, or written to.
    pub(super) fn enter() -> Result<Tty> {
        static HOOK: Once = Once::new();
        HOOK.call_once(|| {
            let before = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |panic| {
                leave();
                before(panic);
            }));
        });
        let backend = CrosstermBackend::new(BufWriter::with_capacity(ROOM, stdout()));
        let options = TerminalOptions {
            viewport: Viewport::Fixed(area()),
        };
        let terminal = Terminal::with_options(backend, options)?;
        let tty = Tty { terminal };
        take()?;
        Ok(tty)
    }

    /// Writes what has changed on the screen.
    ///
    /// # Errors
    ///
    /// The terminal cannot be written to.
    pub(super) fn draw(&mut self, screen: impl FnOnce(&mut Frame<'_>)) -> Result<()> {
        self.terminal.draw(screen)?;
        Ok(())
    }

    /// Asks for the size, and clears the screen: all of it is written next.
    ///
    /// # Errors
    ///
    /// The terminal cannot be written to.
    pub(super) fn resize(&mut self) -> Result<()> {
        self.terminal.resize(area())?;
        self.terminal.clear()?;
        Ok(())
    }

    /// Gives the terminal back and stops until the process is continued.
    ///
    /// # Errors
    ///
    /// The terminal does not let itself be set, or written to.
    pub(super) fn suspend(&mut self) -> Result<()> {
        leave();
        signal_hook::low_level::emulate_default_handler(SIGTSTP)?;
        take()?;
        self.resize()
    }
}

impl Drop for Tty {
    fn drop(&mut self) {
        leave();
    }
}

fn area() -> Rect {
    let (width, height) = sys::window().unwrap_or(SIZE);
    Rect::new(0, 0, width, height)
}

fn take() -> Result<()> {
    enable_raw_mode()?;
    execute!(stdout(), EnterAlternateScreen, Hide)?;
    Ok(())
}

/// Nothing is to be done about a failure: the terminal is gone.
fn leave() {
    let _ = execute!(stdout(), Show, LeaveAlternateScreen);
    let _ = stdout().flush();
    let _ = disable_raw_mode();
}
