//! `fgrpo generate -i`: a conversation, line by line.

use super::Generator;
use fgrpo_core::rng::Key;
use fgrpo_eval::dataset::Message;
use fgrpo_eval::io::interrupt;
use fgrpo_eval::io::poll;
use fgrpo_files::PROMPT;
use std::io::{self, IsTerminal, Read, Write};
use std::os::fd::AsRawFd;
use std::time::Duration;

/// Message that restarts the conversation.
const RESET: &str = "/reset";

/// Answers one line after another, until the input ends or Ctrl-C is pressed.
pub(super) fn hold(generator: &mut Generator<'_>, first: Option<String>) -> anyhow::Result<()> {
    let terminal = io::stdin().is_terminal();
    if terminal {
        say!("Each line is a message. {RESET} starts over, Ctrl-D ends.");
    }
    let key = Key::new(generator.args.seed);
    let mut messages: Vec<Message> = Vec::new();
    let mut input = Lines::default();
    let mut next_line = first;
    for turn in 0.. {
        let line = match next_line.take() {
            Some(line) => line,
            None => {
                if terminal {
                    crate::output::streams::to_stderr(format_args!("\n> "));
                    let _ = io::stderr().flush();
                }
                match input.next()? {
                    Some(line) => line,
                    None => break,
                }
            }
        };
        match line.trim() {
            "" => continue,
            RESET => {
                messages.clear();
                continue;
            }
            _ => {}
        }
        messages.push(Message::new("user", line));
        let prompt = generator.encode(&generator.with_system(messages.iter().cloned()))?;
        let (completion, seconds) = generator.say(prompt, key.with(turn))?;
        generator.conclude(&completion, seconds);
        messages.push(Message::new("assistant", generator.policy.text(&completion)?));
        if interrupt::requested() {
            break;
        }
    }
    if terminal {
        say!("");
    }
    Ok(())
}

/// Reads lines of standard input. Ctrl-C works while it waits for a line.
#[derive(Default)]
struct Lines {
    read: Vec<u8>,
    ended: bool,
}

impl Lines {
    /// Returns the next line without its line break, or `None` at the end of the input or after Ctrl-C.
    fn next(&mut self) -> anyhow::Result<Option<String>> {
        loop {
            if self.read.len() > PROMPT {
                bad_input!("standard input: a message is longer than {PROMPT} bytes");
            }
            if let Some(end) = self.read.iter().position(|&b| b == b'\n') {
                let line: Vec<u8> = self.read.drain(..=end).collect();
                return Ok(Some(String::from_utf8_lossy(&line[..end]).into_owned()));
            }
            if self.ended {
                let rest = std::mem::take(&mut self.read);
                return Ok((!rest.is_empty()).then(|| String::from_utf8_lossy(&rest).into_owned()));
            }
            if interrupt::requested() {
                return Ok(None);
            }
            if poll::wait(None, io::stdin().as_raw_fd(), Duration::from_millis(100))?.1 {
                let mut buffer = [0; 1 << 14];
                // A read of this size bypasses the buffer of standard input, which `poll` can't see.
                let n = io::stdin().lock().read(&mut buffer)?;
                self.ended = n == 0;
                self.read.extend_from_slice(&buffer[..n]);
            }
        }
    }
}
