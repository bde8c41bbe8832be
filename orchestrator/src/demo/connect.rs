//! What a person can type to look further, ready to be pasted into a shell.

use super::USUAL_DIR;
use super::expected::saga_id;
use super::story::{self, Psp};
use super::system::{self, System};
use crate::site::{Leaf, Login, Server, Site, User};
use contracts::command::WalletVerb;
use contracts::id::{Provider, Region};
use contracts::subject;
use std::path::Path;

/// After the demonstration: the same at the usual ports.
pub(super) fn after_the_demo() -> String {
    format!(
        "\nTo look further, keep the same system running with `make up`, then:\n\n{}",
        commands(
            &Site::usual_login(User::Operator),
            &Site::usual_login(User::Gateway),
            Path::new(USUAL_DIR),
        )
    )
}

/// For a system that runs.
pub(super) fn to_the_running(system: &System) -> String {
    let (site, listen) = (&system.site, &system.listen);
    let mut text = format!(
        "\nRunning until Ctrl-C. Files and logs are in {}.\n\n",
        site.dir().display()
    );
    text.push_str(&commands(
        &site.login(User::Operator),
        &site.login(User::Gateway),
        site.dir(),
    ));
    text.push_str("\nOver HTTP:\n\n");
    text.push_str(&format!(
        "  orchestrator     http://{0}/metrics  http://{0}/readyz\n",
        listen.orchestrator
    ));
    for (leaf, address) in &listen.agents {
        text.push_str(&format!(
            "  {:16} http://{address}/metrics  http://{address}/readyz\n",
            system::agent_name(*leaf)
        ));
    }
    for server in [
        Server::Core(1),
        Server::Leaf(Leaf::Eu),
        Server::Leaf(Leaf::Asia),
    ] {
        text.push_str(&format!(
            "  {:16} http://{}\n",
            format!("nats {}", site.server_name(server)),
            site.monitor(server)
        ));
    }
    text
}

/// A callback that a person can send and change at will.
const CALLBACK: &str = r#"{"external_id":"try-1","status":"paid","amount":"5.00","currency":"EUR","customer":"you","region":"eu"}"#;

fn commands(operator: &Login, gateway: &Login, files: &Path) -> String {
    let deposits = story::deposits();
    let saga = deposits.first().map(|deposit| saga_id(deposit));
    let (id, key) = saga.map_or_else(Default::default, |id| (id.to_string(), id.key()));
    let customer = deposits.first().map_or("", |deposit| deposit.customer);
    let subjects = Region::new(story::EU)
        .ok()
        .zip(Provider::new(Psp::Paylink.name()).ok());
    let (wallet, callback) = subjects.map_or_else(Default::default, |(region, provider)| {
        (
            subject::wallet(&region, WalletVerb::Get),
            subject::callback(&provider, "try-1", CALLBACK.as_bytes()),
        )
    });
    let settings = |user: User| {
        let file = system::login_file(files, user);
        format!("{} --config {}", program(), quoted(&file.to_string_lossy()))
    };
    format!(
        "  # the NATS CLI, as an operator\n  \
           ops() {{ nats {operator} \"$@\"; }}\n  \
           ops kv get --raw saga {key}\n  \
           ops kv history saga {key}\n  \
           ops kv watch saga\n  \
           ops stream view BILLING_EVENTS\n  \
           ops consumer info BILLING_INTAKE orchestrator\n  \
           ops micro stats wallet-agent\n  \
           ops req {wallet} '{{\"customer\":\"{customer}\"}}'\n\n  \
           # a callback of your own, as the gateway; sent twice, the second is refused as a repeat\n  \
           gateway() {{ nats {gateway} \"$@\"; }}\n  \
           gateway req {callback} {body}\n\n  \
           # our own command line\n  \
           {ours} saga list\n  \
           {ours} saga show {id}\n  \
           {ours} case list\n  \
           {ours} reconcile\n  \
           echo {body} | {as_gateway} callback send {provider} --file -\n",
        operator = arguments(operator),
        gateway = arguments(gateway),
        key = quoted(&key),
        id = quoted(&id),
        body = quoted(CALLBACK),
        ours = settings(User::Operator),
        as_gateway = settings(User::Gateway),
        provider = Psp::Paylink.name(),
    )
}

/// This program as the person called it, which works from where he stands.
fn program() -> String {
    let called = std::env::args_os().next();
    called.map_or_else(
        || system::ORCHESTRATOR.to_owned(),
        |called| quoted(&called.to_string_lossy()),
    )
}

fn arguments(login: &Login) -> String {
    let arguments: Vec<String> = login
        .cli_arguments()
        .iter()
        .map(|argument| quoted(argument))
        .collect();
    arguments.join(" ")
}

/// As a shell takes it for one word.
fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:,=@%+".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_stays_one_word() {
        assert_eq!(quoted("deposit=2Fstripe=2Fpi_1"), "deposit=2Fstripe=2Fpi_1");
        assert_eq!(quoted("a b"), "'a b'");
        assert_eq!(quoted("it's"), r"'it'\''s'");
        assert_eq!(quoted(""), "''");
    }

    #[test]
    fn commands_name_server_user_and_a_saga_of_the_story() {
        let text = after_the_demo();
        for part in [
            "nats://127.0.0.1:4222",
            "--user operator",
            "--user gateway",
            "--inbox-prefix _INBOX_ops",
            "kv get --raw saga deposit=2Fstripe=2Fpi_demo_0001",
            "--config target/up/operator.toml saga list",
            "ops req billing.eu.wallet.get '{\"customer\":\"ana\"}'",
            "gateway req billing.callback.paylink.try-1.",
        ] {
            assert!(text.contains(part), "{part} in\n{text}");
        }
    }
}
