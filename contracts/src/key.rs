//! The one injective encoding from ids to NATS subject tokens and KV keys.
//!
//! Bytes outside `A-Za-z0-9_-` become `=XX` (upper-case hex), so `*`, `>`, dots, blanks, slashes and
//! Unicode never reach a subject. A result longer than [`MAX_LEN`] keeps a readable head and ends in
//! `=-` and the SHA-256 of the whole id: `=-` cannot come out of the escape, so the two forms never
//! meet. Two different ids have two different keys; no id has a key that matches another's.

use sha2::{Digest, Sha256};

/// Longest key in bytes. Subjects hold a few more tokens; servers take 4 KiB lines.
pub const MAX_LEN: usize = 192;

/// Readable bytes kept of an id whose key would pass [`MAX_LEN`].
const HEAD_LEN: usize = 96;

const HEX: &[u8; 16] = b"0123456789ABCDEF";

/// Encodes `id` as one subject token. An empty id becomes `=`, which no other id does.
#[must_use]
pub fn encode(id: &str) -> String {
    if id.is_empty() {
        return "=".to_owned();
    }
    let mut key = String::with_capacity(id.len() + 8);
    let mut head_end = 0;
    for byte in id.bytes() {
        if byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-' {
            key.push(char::from(byte));
        } else {
            key.push('=');
            key.push(char::from(HEX[usize::from(byte >> 4)]));
            key.push(char::from(HEX[usize::from(byte & 15)]));
        }
        if key.len() <= HEAD_LEN {
            head_end = key.len();
        }
    }
    if key.len() > MAX_LEN {
        key.truncate(head_end);
        key.push_str("=-");
        key.push_str(&hex::encode(Sha256::digest(id.as_bytes())));
    }
    key
}

/// Gives the id back, or `None` for text that [`encode`] does not make or that holds only a digest.
#[must_use]
pub fn decode(key: &str) -> Option<String> {
    if key == "=" {
        return Some(String::new());
    }
    let mut bytes = Vec::with_capacity(key.len());
    let mut rest = key.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'=' => {
                let high = HEX
                    .iter()
                    .position(|&digit| Some(digit) == rest.clone().next())?;
                rest.next();
                let low = HEX
                    .iter()
                    .position(|&digit| Some(digit) == rest.clone().next())?;
                rest.next();
                u8::try_from(high << 4 | low).ok()?
            }
            _ => byte,
        });
    }
    let id = String::from_utf8(bytes).ok()?;
    (encode(&id) == key).then_some(id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn odd_ids_become_safe_tokens() {
        for (id, key) in [
            ("pay-1_A", "pay-1_A"),
            ("", "="),
            ("a.b", "a=2Eb"),
            ("a..b", "a=2E=2Eb"),
            ("*", "=2A"),
            (">", "=3E"),
            ("a=2Eb", "a=3D2Eb"),
            ("k 1", "k=201"),
            ("\u{e9}", "=C3=A9"),
        ] {
            assert_eq!(encode(id), key, "{id:?}");
            assert_eq!(decode(key).as_deref(), Some(id));
        }
    }

    #[test]
    fn long_ids_differ_in_their_last_byte() {
        let first = encode(&"A".repeat(700));
        let second = encode(&format!("{}B", "A".repeat(699)));
        assert_ne!(first, second);
        assert!(first.len() <= MAX_LEN, "{}", first.len());
        assert_eq!(decode(&first), None, "a digest cannot be turned back");
    }

    proptest! {
        #[test]
        fn every_id_round_trips_or_is_digested(id in ".{0,300}") {
            let key = encode(&id);
            prop_assert!(key.len() <= MAX_LEN);
            prop_assert!(key.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-=".contains(&b)));
            match decode(&key) {
                Some(back) => prop_assert_eq!(back, id),
                None => prop_assert!(key.contains("=-")),
            }
        }

        #[test]
        fn different_ids_have_different_keys(a in ".{0,120}", b in ".{0,120}") {
            prop_assert_eq!(encode(&a) == encode(&b), a == b);
        }
    }
}
