//! The `orchestrator` program as a person runs it, on real servers with the shipped accounts.

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use saga_tests::cluster::{Login, Server, Site, User, one_node};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;

const BOUND: Duration = Duration::from_secs(60);

/// Beside the test's own executable: `target/<profile>/deps/<test>`.
fn program() -> Result<PathBuf> {
    let test = std::env::current_exe()?;
    let directory = test.ancestors().nth(2).context("where binaries are")?;
    let program = directory.join("orchestrator");
    ensure!(
        program.is_file(),
        "{} is missing: run `cargo build --bins` first",
        program.display()
    );
    Ok(program)
}

/// The program as one user. No inbox prefix is given: the default has to fit the user.
fn command(site: &Site, user: User) -> Result<Command> {
    let Login {
        url,
        user,
        password,
        ..
    } = site.login(user);
    let mut command = Command::new(program()?);
    command
        .current_dir(site.dir())
        .stdin(Stdio::null())
        .env("ORCHESTRATOR_NATS_URL", url)
        .env("ORCHESTRATOR_NATS_USER", user)
        .env("ORCHESTRATOR_NATS_PASSWORD", password);
    Ok(command)
}

/// How a run of the program ended.
#[derive(Debug)]
struct Run {
    line: String,
    code: Option<i32>,
    out: String,
    err: String,
}

impl Run {
    /// Fails unless it ended with this exit code.
    fn exits(self, code: i32) -> Result<Self> {
        ensure!(
            self.code == Some(code),
            "{}: wanted exit code {code}: {self:#?}",
            self.line
        );
        Ok(self)
    }

    /// Fails unless one of its outputs has this text.
    fn says(self, text: &str) -> Result<Self> {
        ensure!(
            self.out.contains(text) || self.err.contains(text),
            "{}: wanted {text:?}: {self:#?}",
            self.line
        );
        Ok(self)
    }

    fn json(&self) -> Result<Value> {
        serde_json::from_str(&self.out).with_context(|| format!("{self:#?}"))
    }
}

async fn run_with(mut command: Command, arguments: &[&str], input: &str) -> Result<Run> {
    command.args(arguments);
    let mut command = tokio::process::Command::from(command);
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let mut stdin = child.stdin.take().context("stdin")?;
    // A program that does not read its input may be gone already.
    stdin.write_all(input.as_bytes()).await.ok();
    drop(stdin);
    let line = arguments.join(" ");
    let Output {
        status,
        stdout,
        stderr,
    } = tokio::time::timeout(BOUND, child.wait_with_output())
        .await
        .with_context(|| format!("{line}: no end within {BOUND:?}"))??;
    Ok(Run {
        line,
        code: status.code(),
        out: String::from_utf8(stdout)?,
        err: String::from_utf8(stderr)?,
    })
}

async fn run(site: &Site, user: User, arguments: &[&str]) -> Result<Run> {
    run_with(command(site, user)?, arguments, "").await
}

/// A person at work.
async fn operator(site: &Site, arguments: &[&str]) -> Result<Run> {
    run(site, User::Operator, arguments).await
}

/// Stores a callback as the gateway.
async fn callback(site: &Site, external_id: &str, status: &str) -> Result<Run> {
    let body = json!({ "external_id": external_id, "event_type": status, "status": status,
        "amount": "10.00", "currency": "USD", "customer": "cust-a" });
    let arguments = ["callback", "send", "acme", "--file", "-", "-o", "json"];
    run_with(command(site, User::Gateway)?, &arguments, &body.to_string()).await
}

/// Waits until a saga has this status.
async fn until(site: &Site, saga: &str, status: &str) -> Result<Value> {
    let looking = async {
        loop {
            let run = operator(site, &["saga", "show", saga, "-o", "json"]).await?;
            if run.code == Some(0) {
                let shown = run.json()?;
                if shown["record"]["status"] == status {
                    return anyhow::Ok(shown);
                }
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(BOUND, looking)
        .await
        .with_context(|| format!("{saga} is not {status}"))?
}

/// Streams made, and an orchestrator serving as a process of its own.
async fn serving() -> Result<Site> {
    let mut site = one_node().await?;
    let setup = run(&site, User::Orchestrator, &["setup"]).await?.exits(0)?;
    setup.says("created   stream KV_saga")?;
    let mut serve = command(&site, User::Orchestrator)?;
    serve.args(["serve", "--listen", "none", "--grace", "5s"]);
    site.spawn("orchestrator", serve)?;
    Ok(site)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_sets_up_serves_and_follows_a_deposit() -> Result<()> {
    let mut site = serving().await?;
    let again = run(&site, User::Orchestrator, &["setup", "-o", "json"]).await?;
    let report = again.exits(0)?.json()?;
    assert_eq!(report["assets"][0]["state"], "as_declared", "{report}");
    let doctor = run(&site, User::Orchestrator, &["doctor"])
        .await?
        .exits(0)?;
    doctor.says("every write is on disk before it is acknowledged")?;
    let verdict = run(&site, User::Orchestrator, &["doctor", "-o", "json"]).await?;
    assert_eq!(verdict.exits(0)?.json()?["level"], "warn", "one copy");

    let sent = callback(&site, "p1", "paid").await?.exits(0)?.json()?;
    assert_eq!(sent["repeat"], false, "{sent}");
    let sent = callback(&site, "p1", "paid").await?.exits(0)?.json()?;
    assert_eq!(sent["repeat"], true, "{sent}");

    let shown = until(&site, "deposit/acme/p1", "completed").await?;
    assert_eq!(shown["key"], "deposit=2Facme=2Fp1");
    let page = operator(&site, &["saga", "show", "deposit=2Facme=2Fp1", "--history"]).await?;
    page.exits(0)?
        .says("credit-wallet (pivot)")?
        .says("everything was done and its event is in the log")?
        .says("Events: deposit_completed")?
        .says("History")?;
    let watched = operator(&site, &["saga", "watch", "deposit/acme/p1", "-o", "json"]).await?;
    let line: Value = serde_json::from_str(watched.exits(0)?.out.trim())?;
    assert_eq!(line["record"]["status"], "completed", "{line}");

    // Whoever may read records may list them.
    for user in [User::Operator, User::Orchestrator] {
        let arguments = [
            "saga",
            "list",
            "--attribute",
            "customer=cust-a",
            "-o",
            "json",
        ];
        let listed = run(&site, user, &arguments).await?.exits(0)?.json()?;
        assert_eq!(listed["sagas"][0]["saga_id"], "deposit/acme/p1", "{listed}");
        assert_eq!(listed["more"], 0, "{listed}");
    }
    let none = [
        "saga",
        "list",
        "--status",
        "failed",
        "--workflow",
        "deposit",
    ];
    operator(&site, &none).await?.exits(0)?.says("none")?;

    let refused = ["saga", "cancel", "deposit/acme/p1", "--reason", "too late"];
    let refused = operator(&site, &refused).await?.exits(1)?;
    refused.says("refused: the saga has ended; nothing is left to do; completed: ended at ")?;
    site.terminate("orchestrator", BOUND).await?;
    ensure!(
        site.log_tail("orchestrator").contains("stopped"),
        "{}",
        site.log_tail("orchestrator")
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_confirms_one_deposit_and_cancels_another() -> Result<()> {
    let site = serving().await?;
    for external_id in ["w1", "w2"] {
        callback(&site, external_id, "pending").await?.exits(0)?;
        let saga = format!("deposit/acme/{external_id}");
        let shown = until(&site, &saga, "waiting").await?;
        let waits_for = shown["waits_for"].as_str().context("waits_for")?;
        assert!(
            waits_for.starts_with("waits for signal psp-callback until "),
            "{shown}"
        );
    }

    // Both wait, and nothing has been confirmed to them since they were started.
    let stuck = operator(&site, &["saga", "list", "--stuck", "0s"]).await?;
    stuck.exits(0)?.says("acme/w1")?.says("acme/w2")?;
    let stuck = operator(&site, &["saga", "list", "--stuck", "1h"]).await?;
    stuck.exits(0)?.says("none")?;

    let nonsense = ["saga", "signal", "deposit/acme/w1", "nonsense"];
    let nonsense = operator(&site, &nonsense).await?.exits(1)?;
    nonsense.says("kept as case case/intake/")?;
    let cases = operator(&site, &["case", "list"]).await?.exits(0)?;
    cases.says("unreadable")?.says("waits for psp-callback")?;

    let data = r#"{"meaning":"paid"}"#;
    let paid = [
        "saga",
        "signal",
        "deposit/acme/w1",
        "psp-callback",
        "--signal-id",
        "s1",
        "--data",
        data,
    ];
    let said = operator(&site, &paid).await?.exits(0)?;
    said.says("deposit/acme/w1  completed: ended at ")?;
    let said = operator(&site, &[&paid[..], &["-o", "json"]].concat()).await?;
    let said = said.exits(0)?.json()?;
    assert_eq!(
        (&said["repeat"], &said["status"]),
        (&json!(true), &json!("completed")),
        "{said}"
    );

    let cancel = [
        "saga",
        "cancel",
        "deposit=2Facme=2Fw2",
        "--reason",
        "paid twice",
        "--by",
        "ann",
    ];
    let cancelled = operator(&site, &cancel).await?.exits(0)?;
    cancelled
        .says("compensated: ended at ")?
        .says("paid twice (by ann)")?;
    operator(&site, &["saga", "watch", "deposit/acme/w2"])
        .await?
        .exits(1)?;
    let history = ["saga", "show", "deposit/acme/w2", "--history", "-o", "json"];
    let history = operator(&site, &history).await?.exits(0)?.json()?;
    let causes = history["history"].as_array().context("history")?;
    assert!(
        causes
            .iter()
            .any(|entry| entry["cause"] == "turned back: paid twice (by ann)"
                || entry["cause"] == "compensated"),
        "{history}"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_starts_a_saga_once() -> Result<()> {
    let site = serving().await?;
    let input = |amount_minor: i64| {
        json!({
            "payment": { "provider": "acme", "external_id": "st1" }, "meaning": "paid", "customer": "cust-a",
            "amount": { "amount_minor": amount_minor, "currency": "USD", "exponent": 2 },
        })
        .to_string()
    };
    let start = [
        "saga", "start", "deposit", "--id", "order-1", "--input", "-", "--wait", "60s",
    ];
    let started = run_with(command(&site, User::Operator)?, &start, &input(1000)).await?;
    started.exits(0)?.says("deposit/acme/st1  completed: ")?;
    let again = run_with(command(&site, User::Operator)?, &start, &input(1000)).await?;
    again.exits(0)?.says("nothing new was stored")?;
    let other = run_with(command(&site, User::Operator)?, &start, &input(2000)).await?;
    other.exits(1)?.says("with another input")?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn exit_codes_tell_apart_what_went_wrong() -> Result<()> {
    let site = one_node().await?;
    run(&site, User::Orchestrator, &["serve", "--listen", "none"])
        .await?
        .exits(1)?
        .says("run `orchestrator setup` first")?;
    run(&site, User::Orchestrator, &["setup"]).await?.exits(0)?;

    for missing in [
        "deposit/acme/nope",
        "deposit=2Facme=2Fnope",
        "deposit/>",
        "*",
    ] {
        operator(&site, &["saga", "show", missing])
            .await?
            .exits(2)?;
    }
    let data = ["saga", "signal", "deposit/acme/nope", "psp-callback"];
    operator(&site, &data)
        .await?
        .exits(2)?
        .says("there is no saga")?;

    // Accepted, and nobody there to take it up.
    callback(&site, "p1", "pending").await?.exits(0)?;

    for wrong in [
        &["saga", "frobnicate"][..],
        &["saga", "list", "--status", "done"],
        &["saga", "show"],
        &["saga", "start", "nonsense", "--id", "x", "--input", "{}"],
        &["saga", "start", "deposit", "--id", "x", "--input", "{"],
        &[
            "saga",
            "start",
            "deposit",
            "--id",
            "x",
            "--input",
            "@/no/such/file",
        ],
        &[
            "saga",
            "signal",
            "deposit/acme/p1",
            "psp-callback",
            "--data",
            "{",
        ],
        &["setup", "--replicas", "2"],
        &["serve", "--regions", "core"],
        &["doctor", "--config", "/no/such/file.toml"],
    ] {
        let wrong = operator(&site, wrong).await?.exits(64)?;
        ensure!(!wrong.err.is_empty(), "{wrong:#?}");
    }

    let mut nowhere = command(&site, User::Operator)?;
    nowhere.env("ORCHESTRATOR_NATS_URL", "nats://127.0.0.1:1");
    let nowhere = run_with(nowhere, &["saga", "list"], "").await?.exits(3)?;
    assert_eq!(nowhere.err.lines().count(), 1, "{nowhere:#?}");
    // The gateway may store callbacks and read nothing.
    run(&site, User::Gateway, &["saga", "list"])
        .await?
        .exits(3)?;
    // A person may speak to sagas and forge no callback.
    let forged = ["callback", "send", "acme", "--file", "-"];
    operator(&site, &forged)
        .await?
        .exits(1)?
        .says("no stream takes")?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_orchestrator_that_is_up_before_its_servers_waits_for_them() -> Result<()> {
    let mut site = one_node().await?;
    run(&site, User::Orchestrator, &["setup"]).await?.exits(0)?;
    site.kill("core")?;
    let mut serve = command(&site, User::Orchestrator)?;
    serve.args(["serve", "--listen", "none"]);
    site.spawn("orchestrator", serve)?;
    site.until("a first try", BOUND, async |site| {
        let tried = site.log_tail("orchestrator").contains("client error");
        Ok(tried.then_some(()))
    })
    .await?;
    site.restart_server(Server::Core(1)).await?;
    callback(&site, "p1", "paid").await?.exits(0)?;
    until(&site, "deposit/acme/p1", "completed").await?;
    Ok(())
}
