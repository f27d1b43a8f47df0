//! Multiple choice: the first line is the gold, the second has the options, separated by bars; the rest is the response.
//!
//! `cargo +nightly fuzz run choice -- -max_total_time=660`
#![no_main]

use fgrpo_verify::choice::{Match, Verifier, letter, show};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let text = String::from_utf8_lossy(data);
    let mut lines = text.splitn(3, '\n');
    let gold = lines.next().unwrap_or_default();
    let listed = lines.next().unwrap_or_default();
    let response = lines.next().unwrap_or(&text);
    let options: Vec<String> = listed.split('|').map(str::to_owned).collect();
    let borrowed: Vec<&str> = options.iter().map(String::as_str).collect();
    if let Ok(shown) = show(response, &borrowed) {
        let place = shown.order.iter().position(|&given| given == 0).expect("the first option is shown");
        assert_eq!(shown.gold, letter(place));
        let verifier =
            Verifier::new(&shown.gold.to_string(), &shown.options, Match::Letter).expect("an option's letter");
        assert!(verifier.check(&format!("\\boxed{{{}}}", shown.gold)).is_correct());
    }
    for given in [&options[..], &[]] {
        for compare in [Match::Letter, Match::LetterOrContent] {
            let Ok(verifier) = Verifier::new(gold, given, compare) else { continue };
            verifier.check(response);
        }
    }
});
