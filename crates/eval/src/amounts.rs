//! Formats numbers of bytes, seconds and things for people.

/// Formats a number of bytes with a unit: `8.4 MB`.
pub fn bytes(n: u64) -> String {
    match n as f64 {
        n if n >= 1e9 => format!("{:.2} GB", n / 1e9),
        n if n >= 1e6 => format!("{:.1} MB", n / 1e6),
        n => format!("{:.1} kB", n / 1e3),
    }
}

/// Formats a number of things, whose plural ends in `s`: `1 thread`, `2 threads`.
pub fn counted(n: usize, noun: &str) -> String {
    format!("{n} {noun}{}", if n == 1 { "" } else { "s" })
}

/// Formats a duration: `8.4s`, `42s`, `3m 20s`, `2h 05m`.
pub fn duration(seconds: f64) -> String {
    let s = seconds.max(0.0).round() as u64;
    match s {
        0..10 => format!("{:.1}s", seconds.max(0.0)),
        10..60 => format!("{s}s"),
        60..3600 => format!("{}m {:02}s", s / 60, s % 60),
        _ => format!("{}h {:02}m", s / 3600, s % 3600 / 60),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn durations_read_naturally() {
        assert_eq!(super::duration(8.42), "8.4s");
        assert_eq!(super::duration(42.4), "42s");
        assert_eq!(super::duration(200.0), "3m 20s");
        assert_eq!(super::duration(7_500.0), "2h 05m");
    }
}
