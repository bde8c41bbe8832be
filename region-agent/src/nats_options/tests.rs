use super::*;

fn context(json: &str) -> (tempfile::TempDir, NatsOptions) {
    let directory = tempfile::tempdir().expect("directory");
    let path = directory.path().join("eu.json");
    std::fs::write(&path, json).expect("context file");
    let options = NatsOptions {
        context: Some(path.display().to_string()),
        ..NatsOptions::default()
    };
    (directory, options)
}

#[test]
fn a_context_fills_what_is_not_set() {
    let (_directory, options) = context(
        r#"{"url":"nats://eu:4222","user":"u","password":"p","description":"x","tls_first":true}"#,
    );
    let resolved = NatsOptions {
        url: Some("nats://other:4222".to_owned()),
        ..options
    }
    .resolve()
    .expect("resolved");
    assert_eq!(resolved.url.as_deref(), Some("nats://other:4222"));
    assert_eq!(resolved.user.as_deref(), Some("u"));
    assert_eq!(resolved.password, Some(Secret("p".to_owned())));
    assert_eq!(resolved.tls_first.as_deref(), Some("true"));
}

#[test]
fn an_own_identity_replaces_the_contexts_as_a_whole() {
    let (_directory, options) = context(r#"{"creds":"/nowhere.creds","user":"u"}"#);
    let resolved = NatsOptions {
        user: Some("me".to_owned()),
        ..options
    }
    .resolve()
    .expect("resolved");
    assert_eq!(
        (resolved.creds, resolved.user),
        (None, Some("me".to_owned()))
    );
}

#[test]
fn bad_settings_name_their_field() {
    let options = NatsOptions::default;
    for (options, field) in [
        (
            NatsOptions {
                url: Some("nats://a:b:c".to_owned()),
                ..options()
            },
            "nats.url",
        ),
        (
            NatsOptions {
                password: Some(Secret("p".to_owned())),
                ..options()
            },
            "nats.password",
        ),
        (
            NatsOptions {
                cert: Some("x".into()),
                ..options()
            },
            "nats.cert",
        ),
        (
            NatsOptions {
                creds: Some("/does/not/exist".into()),
                ..options()
            },
            "nats.creds",
        ),
        (
            NatsOptions {
                context: Some("../x".to_owned()),
                ..options()
            },
            "nats.context",
        ),
        (
            NatsOptions {
                tls_first: Some("maybe".to_owned()),
                ..options()
            },
            "nats.tls_first",
        ),
    ] {
        let error = options.resolve().expect_err(field).to_string();
        assert!(error.starts_with(field), "{error}");
    }
}

#[test]
fn secrets_are_not_shown() {
    assert!(!format!("{:?}", Secret("p4ss".to_owned())).contains("p4ss"));
    assert_eq!(without_userinfo("nats://u:p@h:4222"), "nats://h:4222");
}
