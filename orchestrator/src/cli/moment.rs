//! Instants and lengths of time for a person.

use jiff::{RoundMode, SignedDuration, Timestamp, TimestampRound, Unit};

/// An instant to the second: `2026-12-01T05:01:10Z`.
pub(super) fn instant(at: Timestamp) -> String {
    let second = TimestampRound::new()
        .smallest(Unit::Second)
        .mode(RoundMode::Trunc);
    at.round(second).unwrap_or(at).to_string()
}

/// How far an instant is from now: `3m 5s ago`, `in 2h 10m`.
pub(super) fn from_now(at: Timestamp, now: Timestamp) -> String {
    if at > now {
        format!("in {}", length(at.duration_since(now)))
    } else {
        format!("{} ago", length(now.duration_since(at)))
    }
}

/// An instant and how far it is from now.
pub(super) fn both(at: Timestamp, now: Timestamp) -> String {
    format!("{} ({})", instant(at), from_now(at, now))
}

/// The two largest units of a length of time: `5d 2h`, `10m 3s`, `0s`.
pub(super) fn length(duration: SignedDuration) -> String {
    let seconds = duration.as_secs();
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60);
    match (days, hours, minutes, seconds % 60) {
        (0, 0, 0, seconds) => format!("{seconds}s"),
        (0, 0, minutes, seconds) => format!("{minutes}m {seconds}s"),
        (0, hours, minutes, _) => format!("{hours}h {minutes}m"),
        (days, hours, _, _) => format!("{days}d {hours}h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_have_two_units() {
        for (seconds, text) in [
            (0, "0s"),
            (59, "59s"),
            (61, "1m 1s"),
            (3_600, "1h 0m"),
            (90_061, "1d 1h"),
        ] {
            assert_eq!(length(SignedDuration::from_secs(seconds)), text);
        }
    }
}
