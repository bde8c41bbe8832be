//! How the layers become settings, and what is refused.

use super::*;

fn load(own: &ServeFlags, environment: &[(&str, &str)], toml: &str) -> Result<Config, String> {
    let directory = tempfile::tempdir().expect("directory");
    let path = directory.path().join("orchestrator.toml");
    std::fs::write(&path, toml).expect("config file");
    let environment = |name: &str| {
        environment
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, value)| (*value).to_owned())
    };
    let common = CommonFlags::default();
    Config::merge(&common, own, environment, Some(&path), Role::Orchestrator)
        .map_err(|error| error.to_string())
}

fn serve(toml: &str) -> Result<ServeConfig, String> {
    let config = load(&ServeFlags::default(), &[], toml)?;
    config.serve().map_err(|error| error.to_string())
}

fn text(text: &str) -> Option<Text> {
    Some(Text(text.to_owned()))
}

#[test]
fn flags_win_over_environment_over_file() {
    let own = ServeFlags {
        name: text("flag"),
        fx: FxFlags {
            source: text("nats"),
            timeout: None,
        },
        partition: PartitionFlags {
            replicas: text("3"),
        },
        ..ServeFlags::default()
    };
    let environment = [
        ("NAME", "env"),
        ("REGIONS", "eu, asia"),
        ("GRACE", "3s"),
        ("NATS_PASSWORD", "0123"),
        ("NATS_USER", "orchestrator"),
        ("HOLD", "1s"),
    ];
    let toml = "name = 'file'\nregions = ['x']\nconnections = 9\nhold = '9s'\n\
                [fx]\nsource = 'table'\ntimeout = '7s'\n[nats]\nurl = 'nats://n:1'\n";
    let config = load(&own, &environment, toml).expect("config");
    let serve = config.serve().expect("serve");
    assert_eq!(serve.name, "flag");
    assert_eq!(serve.connections, 9);
    assert_eq!(serve.partition.replicas(), 3);
    assert_eq!(
        serve.regions.iter().map(Region::as_str).collect::<Vec<_>>(),
        ["eu", "asia"]
    );
    assert_eq!(
        (serve.grace, serve.limits.hold),
        (Duration::from_secs(3), Duration::from_secs(1))
    );
    assert!(matches!(serve.fx, FxConfig::Nats(timeout) if timeout == Duration::from_secs(7)));
    assert_eq!(config.nats.password, Some(Secret("0123".to_owned())));
    assert_eq!(config.nats.url.as_deref(), Some("nats://n:1"));
    assert_eq!(config.nats.inbox_prefix.as_deref(), Some("_INBOX_core"));
}

#[test]
fn nothing_given_is_a_lone_node() {
    let serve = serve("").expect("serve");
    assert_eq!(serve.payments_url, "sqlite://orchestrator.db");
    assert_eq!(serve.wallet_url, "sqlite://wallet-default.db");
    assert_eq!(serve.default_region.as_str(), "default");
    assert_eq!(serve.listen, Some(SocketAddr::from(([127, 0, 0, 1], 9464))));
    assert!(serve.regions.is_empty() && !serve.allow_unsafe_durability);
    assert!(matches!(serve.fx, FxConfig::Table(rates) if rates.is_empty()));
}

#[test]
fn the_example_file_is_read() {
    let serve = serve(include_str!("../../orchestrator.example.toml")).expect("example");
    assert_eq!(serve.providers.providers.len(), 3);
    assert_eq!(serve.providers.currencies.len(), 1);
    assert_eq!(serve.regions.len(), 2);
    assert!(matches!(serve.fx, FxConfig::Table(rates) if rates.len() == 2));
}

#[test]
fn a_limit_for_one_person_is_in_minor_units_of_its_currency() {
    let toml = "[currencies]\nBTC = 8\n[review]\n\
                second_person_above = { EUR = '1000.00', JPY = '5', BTC = '0.5' }\n";
    let rules = serve(toml).expect("rules").rules;
    let limits: Vec<(&str, i64)> = rules
        .second_person_above
        .iter()
        .map(|(code, minor)| (code.as_str(), *minor))
        .collect();
    assert_eq!(limits, [("BTC", 50_000_000), ("EUR", 100_000), ("JPY", 5)]);
}

#[test]
fn the_inbox_prefix_fits_the_user_else_the_command() {
    for (user, role, prefix) in [
        (None, Role::Orchestrator, "_INBOX_core"),
        (None, Role::Setup, "_INBOX_core"),
        (None, Role::Operator, "_INBOX_ops"),
        (None, Role::Gateway, "_INBOX_gateway"),
        (Some("orchestrator"), Role::Operator, "_INBOX_core"),
        (Some("operator"), Role::Setup, "_INBOX_ops"),
        (Some("somebody"), Role::Operator, "_INBOX_ops"),
    ] {
        assert_eq!(role.inbox_prefix(user), prefix, "{user:?} {role:?}");
    }
}

#[test]
fn a_bad_value_is_one_line_naming_the_field() {
    for (toml, field) in [
        ("name = 'a b'", "name"),
        ("payments = 'mysql://u:hunter2@h/d'", "payments"),
        (
            "payments = 'sqlite://a.db'\nwallet = 'sqlite://a.db'",
            "wallet",
        ),
        ("connections = 0", "connections"),
        ("connections = 'many'", "connections"),
        ("default_region = 'EU'", "default_region"),
        ("regions = 'eu,callback'", "regions"),
        ("regions = ['core']", "regions"),
        ("listen = '9464'", "listen"),
        ("hold = 'soon'", "hold"),
        ("grace = 1", "grace"),
        ("replicas = 2", "replicas"),
        (
            "allow_unsafe_durability = 'perhaps'",
            "allow_unsafe_durability",
        ),
        ("log_format = 'xml'", "log_format"),
        ("unknown_providers = 'drop'", "unknown_providers"),
        ("nmae = 'x'", "nmae"),
        ("[nats]\nurll = 'x'", "urll"),
        ("[nats]\ntls_first = 'x'", "nats.tls_first"),
        ("[fx]\nsource = 'guess'", "fx.source"),
        ("[fx.rates]\n'EURUSD' = '1.1'", "EURUSD"),
        ("[fx.rates]\n'EUR/USD' = 1.1", "EUR/USD"),
        ("[fx.rates]\n'EUR/USD' = '0'", "EUR/USD"),
        ("[currencies]\nBTC = 99", "BTC"),
        (
            "[review]\nsecond_person_above = { EUR = '1.001' }",
            "second_person_above",
        ),
        (
            "[review]\nsecond_person_above = { EUR = '-1' }",
            "second_person_above",
        ),
        (
            "[review]\nsecond_person_above = { QQQ = '1' }",
            "second_person_above",
        ),
        ("[review]\nsecond_person = 1", "second_person"),
        ("[providers.stripe]\nformat = 'stripe'", "providers.stripe"),
        ("[providers.acme]\nformt = 'x'", "formt"),
        ("[providers.'A B']", "A B"),
    ] {
        let error = serve(toml).expect_err(toml);
        assert!(error.contains(field), "{toml}: {error}");
        assert!(!error.contains('\n'), "{toml}: {error}");
        assert!(!error.contains("hunter2"), "{toml}: {error}");
    }
}
