//! Ids as subject tokens and KV keys: injective, within their bound, never more than one token.

use contracts::id::{OperationId, Provider, SagaId};
use contracts::{key, subject};
use proptest::prelude::*;

use crate::shapes::{external, name, operation, region, saga, text};

/// Longest subject a server takes beside the other words of a line (it reads lines of 4 KiB).
const LONGEST_SUBJECT: usize = 1024;

/// A KV key and subject token as NATS clients and servers accept it.
fn is_token(token: &str) -> bool {
    !token.is_empty()
        && token.len() <= key::MAX_LEN
        && token
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_=".contains(&byte))
}

/// Two texts that differ in one place only, which is where an encoding loses something.
fn neighbours() -> impl Strategy<Value = (String, String)> {
    let odd = prop::sample::select(vec![
        '=', '-', '_', '.', 'A', 'a', '2', 'E', '\0', 'é', '\u{e8}', '%', '/',
    ]);
    (text(220), any::<prop::sample::Index>(), odd.clone(), odd).prop_map(
        |(text, at, one, other)| {
            let mut first: Vec<char> = text.chars().collect();
            let at = at.index(first.len() + 1);
            let mut second = first.clone();
            first.insert(at, one);
            second.insert(at, other);
            (first.into_iter().collect(), second.into_iter().collect())
        },
    )
}

fn check_subject(subject: &str, tokens: usize) {
    assert!(
        subject.len() <= LONGEST_SUBJECT,
        "{} bytes: {subject}",
        subject.len()
    );
    assert_eq!(subject.split('.').count(), tokens, "{subject}");
    for token in subject.split('.') {
        // The name of an event is ours and has an underscore; all else is a key.
        assert!(is_token(token), "{token:?} in {subject}");
    }
}

proptest! {
    #[test]
    fn an_id_is_one_token_and_comes_back(id in prop_oneof![text(40), text(1200)]) {
        let key = key::encode(&id);
        prop_assert!(is_token(&key), "{key:?}");
        match key::decode(&key) {
            Some(back) => prop_assert_eq!(back, id),
            None => prop_assert!(key.contains("=-") && id.len() > 64, "{} from {:?}", key, id),
        }
    }

    #[test]
    fn ids_that_differ_in_one_place_have_different_keys((a, b) in neighbours()) {
        prop_assert_eq!(key::encode(&a) == key::encode(&b), a == b);
        let prefix = "x".repeat(300);
        prop_assert_eq!(
            key::encode(&format!("{prefix}{a}")) == key::encode(&format!("{prefix}{b}")),
            a == b
        );
    }

    #[test]
    fn a_key_is_the_key_of_one_id_only(id in text(80)) {
        // What is taken for a key elsewhere may be an id here: it must not meet its own key.
        let key = key::encode(&id);
        prop_assert_eq!(key::encode(&key) == key, key == id);
    }

    #[test]
    fn any_token_decodes_to_what_encodes_to_it_or_to_nothing(token in "[A-F0-9a-z=_-]{0,40}|.{0,20}") {
        if let Some(id) = key::decode(&token) {
            prop_assert_eq!(key::encode(&id), token);
        }
    }

    #[test]
    fn parts_of_a_saga_id_stay_apart(
        (a, b) in neighbours(),
        cut in any::<prop::sample::Index>(),
        rest in text(8),
    ) {
        let id = |parts: &[&str]| SagaId::from_parts("w", parts);
        prop_assert_eq!(id(&[&a, &rest]) == id(&[&b, &rest]), a == b);
        // The same text cut elsewhere is another identity.
        let chars: Vec<char> = a.chars().collect();
        let cut = cut.index(chars.len() + 1);
        let (head, tail) = (String::from_iter(&chars[..cut]), String::from_iter(&chars[cut..]));
        prop_assert_eq!(id(&[&head, &tail]) == id(&[&a]), false);
        prop_assert_eq!(id(&[&head, &tail]) == id(&[&a, ""]), tail.is_empty());
        prop_assert!(SagaId::new(id(&[&a, &b]).as_str()).is_ok());
    }

    #[test]
    fn operations_of_a_saga_are_told_apart(a in saga(), b in saga(), one in name(20), other in name(20)) {
        let all = |saga: &SagaId| {
            let forward = [saga.own_operation(), saga.operation(&one), saga.operation(&other)];
            let others = [OperationId::revert, OperationId::status];
            let others = others.map(|other| forward.each_ref().map(other));
            forward.into_iter().chain(others.into_iter().flatten()).collect::<Vec<_>>()
        };
        let (of_a, of_b) = (all(&a), all(&b));
        for (i, x) in of_a.iter().enumerate() {
            for (j, y) in of_a.iter().enumerate() {
                let same_step = i == j || (one == other && i % 3 != 0 && j % 3 != 0 && i / 3 == j / 3);
                prop_assert_eq!(x == y, same_step, "{} {}", x, y);
            }
            prop_assert_eq!(OperationId::new(x.as_str()), Ok(x.clone()));
            if a.as_str().split('/').count() == b.as_str().split('/').count() && a != b {
                prop_assert!(!of_b.contains(x), "{x}");
            }
        }
    }

    #[test]
    fn every_subject_has_its_tokens_whatever_the_ids(
        saga in saga(), id in external(), provider in name(32), region in region(),
        body in prop::collection::vec(any::<u8>(), 0..20), operation in operation(),
    ) {
        let provider = Provider::new(provider).expect("a provider");
        check_subject(&subject::callback(&provider, &id, &body), 5);
        check_subject(&subject::signal(&saga, &id, &body), 5);
        check_subject(&subject::operator(&saga, &id, &body), 5);
        check_subject(&subject::start(&id, operation.as_str()), 4);
        check_subject(&subject::event(&region, &saga, "deposit_completed"), 5);
        check_subject(&subject::timer(&saga.key()), 3);
        check_subject(&subject::due(&saga.key()), 3);
        let callback = subject::callback(&provider, &id, &body);
        let provider = provider.as_str();
        prop_assert_eq!(subject::parse_intake(&callback), subject::Intake::Callback { provider });
        let (signal, start) = (subject::signal(&saga, &id, &body), subject::start(&id, &id));
        prop_assert_eq!(subject::parse_intake(&signal), subject::Intake::Signal);
        prop_assert_eq!(subject::parse_intake(&start), subject::Intake::Start);
    }

    #[test]
    fn no_subject_panics(subject in text(60)) {
        for subject in [&subject, &format!("billing.{subject}")] {
            let known = ["callback", "start", "signal", "operator"];
            let second = subject.split('.').nth(1).unwrap_or_default();
            if subject::parse_intake(subject) != subject::Intake::Other {
                prop_assert!(known.contains(&second), "{subject}");
            }
        }
    }
}
