//! Ctrl-C and termination: the first one asks the work to save and stop, the second one ends it.

use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

static ASKED: AtomicU32 = AtomicU32::new(0);
static INSTALL: Once = Once::new();

/// Listens from now on. Calling it again does nothing.
pub fn listen() {
    INSTALL.call_once(|| {
        // Without a handler Ctrl-C still ends the program; nothing is lost but the last steps.
        let _ = ctrlc::set_handler(|| {
            if ASKED.fetch_add(1, Ordering::SeqCst) == 0 {
                eprintln!("\nstopping after the work at hand; once more ends at once");
            } else {
                std::process::exit(130);
            }
        });
    });
}

/// Whether somebody asked to stop.
pub fn asked() -> bool {
    ASKED.load(Ordering::SeqCst) > 0
}
