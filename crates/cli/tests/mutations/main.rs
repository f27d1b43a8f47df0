//! Generated bad inputs: the number of a case decides how a valid input is damaged. The command that reads it must end within
//! 20 s of processor time and 4 GB of address space, with an exit code and without a panic. If it refuses the input, its
//! message must name what it refuses.
//!
//! `FGRPO_MUTATIONS=10000 cargo test -p fgrpo --test mutations -- --nocapture` runs that many cases and prints figures. With
//! `FGRPO_MUTATIONS_SHOWN=60` it also prints about that many refusals, evenly spread, for reading.
//! `FGRPO_MUTATION=123` runs one and prints its files' folder, command and output.

mod attacks;
mod confine;
mod damage;
mod fields;
mod inputs;

use confine::Ended;
use inputs::{Case, Inputs};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Limit of a case's processor time over all its threads. On an idle machine it is at least the wall-clock time. On a busy
/// one, wall-clock time measures the other programs; [`confine`] still ends a program that sleeps.
const TIME: Duration = Duration::from_secs(20);
const MEMORY: u64 = 4 << 30;

/// Number of cases in an ordinary test run: a few of each kind of input.
const FEW: u64 = 91;

/// Describes what is wrong with the end of a case, if anything.
fn fault(case: &Case, ended: &Ended) -> Option<String> {
    let said = &ended.stderr;
    let code = match ended.code {
        Some(code) => code,
        None if ended.too_long => {
            return Some(format!(
                "did not end within {} s of work ({:.1} s)",
                TIME.as_secs(),
                ended.time.as_secs_f64()
            ));
        }
        None => return Some("was ended by a signal".into()),
    };
    if !(0..=2).contains(&code) {
        return Some(format!("ended with code {code}"));
    }
    if said.contains("panicked at") || said.contains("RUST_BACKTRACE") {
        return Some("panicked".into());
    }
    if code != 0 && said.trim().is_empty() {
        return Some("failed without a message".into());
    }
    if code != 0 && !case.names.iter().any(|name| said.contains(name.as_str())) {
        return Some(format!("its message names none of {:?}", case.names));
    }
    None
}

fn describe(number: u64, case: &Case, ended: &Ended, what: &str) -> String {
    let said: String = ended.stderr.chars().take(1500).collect();
    format!(
        "case {number}, {}: {what}\n  {:?}\n  {}",
        case.kind,
        case.arguments,
        said.trim().replace('\n', "\n  ")
    )
}

#[test]
fn damaged_inputs_end_soon_in_bounds_and_with_a_message() {
    let folder = tempfile::tempdir().unwrap();
    let inputs = Inputs::make(folder.path());
    if let Ok(number) = std::env::var("FGRPO_MUTATION") {
        let number = number.parse().unwrap();
        let place = folder.keep().join("case");
        let case = inputs.case(number, &place);
        let ended = confine::run(&case.arguments, &place, TIME, MEMORY);
        println!(
            "{}\nexit code {:?}",
            describe(number, &case, &ended, &place.display().to_string()),
            ended.code
        );
        assert_eq!(fault(&case, &ended), None);
        return;
    }
    let wanted = |name: &str, or: u64| std::env::var(name).map_or(or, |n| n.parse().unwrap());
    let count = wanted("FGRPO_MUTATIONS", FEW);
    let shown = wanted("FGRPO_MUTATIONS_SHOWN", 0);
    let next = AtomicU64::new(0);
    let (faults, figures) = (Mutex::new(Vec::new()), Mutex::new(Figures::default()));
    std::thread::scope(|scope| {
        for worker in 0..2 {
            let (next, inputs, faults, figures) = (&next, &inputs, &faults, &figures);
            let place = folder.path().join(format!("worker-{worker}"));
            scope.spawn(move || {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= count {
                        return;
                    }
                    let (case, ended) = one(inputs, number, &place, faults, figures);
                    // The kinds take turns, so the distance between two cases that are shown is odd.
                    let every = (count / shown.max(1)) | 1;
                    if shown > 0 && number.is_multiple_of(every) && ended.code != Some(0) {
                        println!("{}", describe(number, &case, &ended, "refused"));
                    }
                }
            });
        }
    });
    println!("{}", figures.into_inner().unwrap());
    let faults = faults.into_inner().unwrap();
    assert!(faults.is_empty(), "{} of {count}:\n{}", faults.len(), faults.join("\n"));
}

fn one(
    inputs: &Inputs,
    number: u64,
    place: &Path,
    faults: &Mutex<Vec<String>>,
    figures: &Mutex<Figures>,
) -> (Case, Ended) {
    let _ = std::fs::remove_dir_all(place);
    let case = inputs.case(number, place);
    let ended = confine::run(&case.arguments, place, TIME, MEMORY);
    figures.lock().unwrap().add(number, &case, &ended);
    if let Some(what) = fault(&case, &ended) {
        let text = describe(number, &case, &ended, &what);
        println!("{text}");
        faults.lock().unwrap().push(text);
    }
    (case, ended)
}

/// Results of a campaign, by kind of input.
#[derive(Default)]
struct Figures {
    kinds: BTreeMap<&'static str, [u64; 4]>,
    slowest: (Duration, u64),
    largest: (u64, u64),
    /// Number of refusals that name an expected value.
    wanted: u64,
}

impl Figures {
    fn add(&mut self, number: u64, case: &Case, ended: &Ended) {
        let counts = self.kinds.entry(case.kind).or_default();
        counts[ended.code.map_or(3, |code| code.clamp(0, 3) as usize)] += 1;
        self.slowest = self.slowest.max((ended.time, number));
        self.largest = self.largest.max((ended.memory, number));
        let says = ["wanted", "expected", "possible values", "required", "unexpected"];
        self.wanted +=
            u64::from(ended.code != Some(0) && says.iter().any(|word| ended.stderr.contains(word)));
    }
}

impl std::fmt::Display for Figures {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "{:<14}{:>8}{:>8}{:>8}{:>8}", "input", "code 0", "code 1", "code 2", "other")?;
        let mut refused = 0;
        for (kind, [fine, failed, bad, other]) in &self.kinds {
            writeln!(f, "{kind:<14}{fine:>8}{failed:>8}{bad:>8}{other:>8}")?;
            refused += failed + bad;
        }
        writeln!(f, "most processor time {:.1} s (case {})", self.slowest.0.as_secs_f64(), self.slowest.1)?;
        writeln!(f, "largest {} MB (case {})", self.largest.0 >> 20, self.largest.1)?;
        write!(f, "{} of {refused} refusals say what was wanted", self.wanted)
    }
}
