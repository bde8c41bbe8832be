//! What no machine can decide, brought to its end by people, on real servers with the shipped accounts.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use contracts::audit::{AuditEntry, OperatorAnswer};
use contracts::command::{CommandHeader, Movement, WalletCommand, WalletUpdate};
use contracts::id::OperationId;
use contracts::money::{Currency, CurrencyCode, Money};
use contracts::reply::WalletReply;
use futures::StreamExt as _;
use jiff::SignedDuration;
use orchestrator::clock::wall_clock;
use orchestrator::doctor;
use orchestrator::partition::Partition;
use orchestrator::saga::record::{CaseReason, Outcome, SagaRecord, Status};
use orchestrator::serve;
use orchestrator::site::User;
use region_agent::clock::Clock;
use region_agent::wallet::Wallet;
use saga_tests::deposit::Deposit;
use saga_tests::system::System;
use serde_json::json;

const BOUND: Duration = Duration::from_secs(60);

fn eur(minor: i64) -> Result<Money> {
    Ok(Money::new(minor, Currency::iso(CurrencyCode::new("EUR")?)?))
}

/// Moves money in a customer's wallet, as some other business of his does.
async fn other_business(
    system: &System,
    deposit: &Deposit,
    movement: Movement,
    id: &str,
) -> Result<()> {
    let wallet = Wallet::new(system.ledger(deposit.region).await?, Clock::system());
    let header = CommandHeader {
        saga_id: None,
        operation_id: OperationId::new(id)?,
        attempt: 1,
        fence: 0,
        deadline: wall_clock().checked_add(SignedDuration::from_secs(60))?,
    };
    let update = WalletUpdate {
        customer: deposit.customer_id(),
        movement,
        money: eur(deposit.amount_minor)?,
        memo: None,
    };
    let reply = wallet
        .execute(&header, &WalletCommand::Update(update))
        .await;
    ensure!(matches!(reply, WalletReply::Applied { .. }), "{reply:?}");
    Ok(())
}

/// Whether the credit of the wallet is out.
fn is_crediting(record: &SagaRecord) -> bool {
    record
        .steps
        .iter()
        .any(|step| step.pivot && matches!(step.forward.outcome, Outcome::InFlight { .. }))
}

/// Every entry of the audit stream, read with a person's rights, once it has this many.
async fn audited(system: &System, count: usize) -> Result<Vec<AuditEntry>> {
    let js = serve::context(&system.site.connect(User::Operator).await?);
    let stream = js.get_stream(Partition::only(1).audit_stream()).await?;
    let mut entries = stream
        .create_consumer(async_nats::jetstream::consumer::pull::OrderedConfig::default())
        .await?
        .messages()
        .await?;
    let mut found = Vec::new();
    while found.len() < count {
        let message = tokio::time::timeout(BOUND, entries.next())
            .await
            .with_context(|| format!("{count} entries wanted: {found:#?}"))?
            .context("the consumer ended")??;
        let entry: AuditEntry = serde_json::from_slice(&message.payload)?;
        let request = &entry.request;
        let subject = contracts::subject::audit(&request.saga_id, &request.id, &request.digest());
        ensure!(message.subject.as_str() == subject, "{}", message.subject);
        found.push(entry);
    }
    Ok(found)
}

fn told(entries: &[AuditEntry]) -> Vec<String> {
    entries
        .iter()
        .map(|entry| {
            let answer = match &entry.answer {
                OperatorAnswer::Accepted => "accepted",
                OperatorAnswer::Refused { .. } => "refused",
                OperatorAnswer::Proposed { .. } => "proposed",
            };
            format!(
                "{} {} {answer}",
                entry.request.by,
                entry.request.verb.name()
            )
        })
        .collect()
}

/// A deposit whose payment somebody closes while the wallet is being credited: the money has moved, and the
/// payment cannot be marked.
async fn stuck_after_the_pivot(system: &mut System, deposit: &Deposit) -> Result<()> {
    let agent = format!("agent-{}", deposit.region);
    system.site.freeze(&agent)?;
    system.deposit(deposit).await?;
    let saga = deposit.saga_id();
    system.until_record(&saga, BOUND, is_crediting).await?;
    let closed = OperationId::new(format!("closed-by-hand-{}", deposit.external_id))?;
    let (payment, now) = (deposit.identity(), wall_clock());
    system
        .payments()
        .await?
        .mark_cancelled(&closed, &saga, &payment, "by mistake", now)
        .await?;
    system.site.thaw(&agent)?;
    let record = system
        .until_record(&saga, BOUND, |record| record.status == Status::NeedsReview)
        .await?;
    let reason = record.case.map(|case| case.reason);
    ensure!(reason == Some(CaseReason::RefusedAfterPivot), "{reason:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_compensation_that_the_wallet_refuses_is_finished_by_people() -> Result<()> {
    let mut system = System::start_whole().await?;
    let deposit = Deposit::new("spent", "eu");
    stuck_after_the_pivot(&mut system, &deposit).await?;
    let (saga, id) = (deposit.saga_id(), deposit.saga_id().to_string());

    let shown = system.types(&format!("case show {id}")).await?.exits(0)?;
    let shown = shown.json()?;
    assert_eq!(shown["case"]["reason"], "refused_after_pivot", "{shown}");
    assert_eq!(shown["amount_at_risk"][0]["amount_minor"], 1250, "{shown}");
    let next = shown["next"].to_string();
    ensure!(
        next.contains(&format!("orchestrator case compensate {id} --reason TEXT")),
        "{next}"
    );
    ensure!(!next.contains("saga cancel"), "{next}");

    system
        .types(&format!("saga cancel {id} --reason late"))
        .await?
        .exits(1)?
        .says("the pivot has been applied")?
        .says("allowed now: assign, retry-now, hold, resolve, compensate")?;

    // What would happen is what does, and nothing has.
    let before = system.record(&saga).await?.context("a record")?.1;
    let line = format!("case compensate {id} --reason mistake --id c1");
    let dry = system.types(&format!("{line} --dry-run")).await?.exits(0)?;
    let dry = dry.json()?;
    let steps = |commands: &serde_json::Value| -> Vec<String> {
        let all = commands.as_array().cloned().unwrap_or_default();
        all.iter()
            .map(|command| command["step"].as_str().unwrap_or_default().to_owned())
            .collect()
    };
    assert_eq!(steps(&dry["commands"]), ["undo of credit-wallet"], "{dry}");
    assert_eq!(
        steps(&dry["following"]),
        ["undo of find-or-create-payment"],
        "{dry}"
    );
    assert_eq!(dry["ends"], "compensated", "{dry}");
    assert_eq!(dry["money"][0]["money"]["amount_minor"], -1250, "{dry}");
    assert_eq!(
        dry["money"][0]["customer"],
        json!(deposit.customer),
        "{dry}"
    );
    assert_eq!(dry["money"][0]["certain"], true, "{dry}");
    assert_eq!(system.record(&saga).await?.context("a record")?.1, before);

    other_business(&system, &deposit, Movement::Debit, "shopping").await?;
    let said = system.types(&line).await?.exits(0)?;
    assert_eq!(said.json()?["status"], "needs_review", "{said:?}");
    let record = system.record(&saga).await?.context("a record")?.0;
    let case = record.case.context("a case")?;
    assert_eq!(case.reason, CaseReason::CompensationRefused);
    assert_eq!(case.operation_id, Some(deposit.credit().revert()));
    assert_eq!(case.amount_at_risk, [eur(1250)?]);
    system
        .types(&format!("case assign {id} --owner bob --reason knows"))
        .await?
        .exits(0)?;
    let listed = system.types("case list").await?.exits(0)?;
    assert_eq!(
        listed.json()?["sagas"][0]["case"]["owner"],
        "bob",
        "{listed:?}"
    );

    // As long as the wallet has nothing, trying again ends where it was.
    let again = format!("case retry-now {id} --reason again");
    system
        .types(&again)
        .await?
        .exits(0)?
        .says("insufficient_funds")?;
    other_business(&system, &deposit, Movement::Credit, "wages").await?;
    let said = system
        .types(&format!("saga retry {id} --reason funded"))
        .await?
        .exits(0)?;
    assert_eq!(said.json()?["status"], "compensated", "{said:?}");
    let books = system.ledger("eu").await?.verify().await?;
    ensure!(books.is_empty(), "{books:?}");

    // The same request again changes nothing, and what has ended takes no more.
    let said = system.types(&line).await?.exits(0)?;
    assert_eq!(said.json()?["repeat"], true, "{said:?}");
    system
        .types(&format!("case hold {id} --reason late"))
        .await?
        .exits(1)?
        .says("the saga has ended")?;

    let entries = audited(&system, 6).await?;
    let wanted = [
        "ann cancel refused",
        "ann compensate accepted",
        "ann assign accepted",
        "ann retry-now accepted",
        "ann retry-now accepted",
        "ann hold refused",
    ];
    assert_eq!(told(&entries), wanted);
    assert_eq!(entries[1].status_after, "compensating");

    // Nobody takes an entry away: neither a person nor the orchestrator.
    for user in [User::Operator, User::Orchestrator] {
        let js = serve::context(&system.site.connect(user).await?);
        let stream = js.get_stream(Partition::only(1).audit_stream()).await?;
        ensure!(stream.purge().await.is_err(), "{user:?} may purge");
        ensure!(
            stream.delete_message(1).await.is_err(),
            "{user:?} may delete"
        );
        ensure!(
            js.delete_stream(Partition::only(1).audit_stream())
                .await
                .is_err()
        );
    }
    assert_eq!(audited(&system, 6).await?.len(), 6);
    let findings = doctor::sagas(&system.js, &Partition::only(1)).await?;
    ensure!(findings.undriven_count == 0, "{findings:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_held_saga_stands_still_while_others_run_out_of_time() -> Result<()> {
    let mut system = System::start_whole().await?;
    system.site.kill("agent-asia")?;
    let held = Deposit::new("held", "asia");
    let other = Deposit::new("not-held", "asia");
    let (saga, id) = (held.saga_id(), held.saga_id().to_string());
    system.deposit(&held).await?;
    let tried = |record: &SagaRecord| record.steps.iter().any(|step| step.pivot);
    system.until_record(&saga, BOUND, tried).await?;
    let said = system
        .types(&format!("saga hold {id} --reason looking"))
        .await?
        .exits(0)?;
    said.says("is held since")?;
    let record = system.record(&saga).await?.context("a record")?.0;
    assert_eq!((record.wake_at, record.timer_at), (None, None));

    // Whoever is not held has its budget spent on a region that is away.
    system.deposit(&other).await?;
    let ended = system.until_ended(&other.saga_id(), BOUND).await?;
    ensure!(ended.status != Status::Completed, "{ended:#?}");
    let stands = system.record(&saga).await?.context("a record")?.0;
    assert_eq!(
        (stands.status, &stands.steps),
        (record.status, &record.steps)
    );
    let findings = doctor::sagas(&system.js, &Partition::only(1)).await?;
    assert_eq!(
        (findings.undriven_count, findings.for_a_person),
        (0, 1),
        "{findings:?}"
    );
    system.types("case list").await?.exits(0)?.says(&id)?;
    system
        .types(&format!("case compensate {id} --reason now"))
        .await?
        .exits(1)?
        .says("release it first")?;

    // Another replica lets it go on.
    system.restart("agent-asia")?;
    system.ready("agent-asia").await?;
    system.restart("orchestrator")?;
    system.ready("orchestrator").await?;
    let said = system
        .types(&format!("saga release {id} --reason done"))
        .await?
        .exits(0)?;
    assert_eq!(said.json()?["status"], "completed", "{said:?}");
    system.audit(BOUND).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unknown_outcome_is_settled_by_the_word_of_two_people() -> Result<()> {
    let mut system = System::start().await?;
    let settings = "[review]\nsecond_person_above = { EUR = \"10.00\" }\n";
    let path = system.site.dir().join("review.toml");
    std::fs::write(&path, settings)?;
    system.spawn_agents()?;
    let path = path.display().to_string();
    system.spawn_orchestrator("orchestrator", &[("CONFIG", &path)])?;
    for name in ["agent-eu", "agent-asia", "orchestrator"] {
        system.ready(name).await?;
    }
    let deposit = Deposit::new("unknown", "asia");
    let (saga, id) = (deposit.saga_id(), deposit.saga_id().to_string());
    system.site.freeze("agent-asia")?;
    system.deposit(&deposit).await?;
    system.until_record(&saga, BOUND, is_crediting).await?;
    // The wallet is silent and will stay so. It turns back, and its revert is not answered either.
    let cancel = format!("saga cancel {id} --reason gone --id c1");
    let said = system.types(&cancel).await?.exits(0)?;
    let why = said.json()?["proposed"].to_string();
    ensure!(why.contains("12.50 EUR are at risk"), "{said:?}");
    // The wallet may have credited it, so a second person agrees to take that back.
    let agree = format!("case approve {id} --request c1 --reason agreed --by bob --no-wait");
    system.types(&agree).await?.exits(0)?;
    let undoing = |record: &SagaRecord| {
        record.steps.iter().any(|step| {
            let undo = step.undo.as_ref().map(|undo| &undo.outcome);
            step.pivot && matches!(undo, Some(Outcome::InFlight { .. }))
        })
    };
    system.until_record(&saga, BOUND, undoing).await?;
    system
        .types(&format!("case hold {id} --reason phoning"))
        .await?
        .exits(0)?;

    // While an answer may still come nobody's word counts; afterwards it does.
    let revert = deposit.credit().revert();
    let line = format!(
        "case resolve {id} --applied --operation {revert} --evidence ledger --reason seen --id w1"
    );
    let may_be_said = async {
        loop {
            let shown = system.types(&format!("case show {id}")).await?.exits(0)?;
            if shown.json()?["next"].to_string().contains(revert.as_str()) {
                return anyhow::Ok(());
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(BOUND, may_be_said)
        .await
        .context("never open")??;
    let said = system.types(&line).await?.exits(0)?;
    let why = said.json()?["proposed"].to_string();
    ensure!(why.contains("12.50 EUR are at risk"), "{said:?}");
    let approve = format!("case approve {id} --request w1 --reason agreed");
    system
        .types(&approve)
        .await?
        .exits(1)?
        .says("cannot be the second person")?;
    system
        .types(&format!("{approve} --by bob"))
        .await?
        .exits(0)?;
    let record = system.record(&saga).await?.context("a record")?.0;
    ensure!(
        record.is_held() && record.status == Status::Compensating,
        "{record:#?}"
    );
    let said = system
        .types(&format!("case release {id} --reason done"))
        .await?
        .exits(0)?;
    assert_eq!(said.json()?["status"], "compensated", "{said:?}");
    let steps = system.record(&saga).await?.context("a record")?.0.steps;
    let pivot = steps.into_iter().find(|step| step.pivot);
    let undo = pivot.and_then(|step| step.undo);
    let outcome = undo.context("an undo")?.outcome;
    let Outcome::Applied { reply, .. } = outcome else {
        anyhow::bail!("{outcome:?}");
    };
    assert_eq!(
        (&reply["by"], &reply["evidence"]),
        (&json!("ann"), &json!("ledger"))
    );
    let entries = audited(&system, 7).await?;
    let wanted = [
        "ann cancel proposed",
        "bob approve accepted",
        "ann hold accepted",
        "ann resolve proposed",
        "ann approve refused",
        "bob approve accepted",
        "ann release accepted",
    ];
    assert_eq!(told(&entries), wanted);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_no_saga_takes_in_is_looked_after_and_closed() -> Result<()> {
    let mut system = System::start_whole().await?;
    let deposit = Deposit {
        status: "pending",
        ..Deposit::new("waits", "eu")
    };
    let id = deposit.saga_id().to_string();
    system.deposit(&deposit).await?;
    let waits = |record: &SagaRecord| record.status == Status::Waiting;
    system
        .until_record(&deposit.saga_id(), BOUND, waits)
        .await?;
    let said = system
        .types(&format!("saga signal {id} nonsense"))
        .await?
        .exits(1)?;
    let case = said.json()?["case_id"]
        .as_str()
        .context("a case")?
        .to_owned();
    system
        .types(&format!("case assign {case} --owner bob --reason b"))
        .await?
        .exits(0)?;
    system
        .types(&format!("case hold {case} --reason b"))
        .await?
        .exits(1)?
        .says("no saga")?;
    let said = system
        .types(&format!("case resolve {case} --reason typo"))
        .await?
        .exits(0)?;
    assert_eq!(said.json()?["status"], "completed", "{said:?}");
    let shown = system.types(&format!("saga show {case}")).await?.exits(0)?;
    assert_eq!(
        shown.json()?["record"]["result"]["closed_by"],
        "ann",
        "{shown:?}"
    );
    let listed = system.types("case list").await?.exits(0)?;
    assert_eq!(listed.json()?["sagas"], json!([]), "{listed:?}");

    // A request without a reason is none, and one for a saga that is not there is kept.
    system
        .types(&format!("case hold {id} --by  --reason x"))
        .await?
        .exits(64)?;
    let request =
        |fields: &str| format!("{{\"saga_id\":\"{id}\",\"id\":\"1\",\"verb\":\"hold\"{fields}}}");
    for (number, fields) in [",\"reason\":\" \",\"by\":\"ann\"", ",\"reason\":\"r\""]
        .iter()
        .enumerate()
    {
        let subject = format!("billing.operator.{}.{number}", deposit.saga_id().key());
        let js = serve::context(&system.site.connect(User::Operator).await?);
        js.publish(subject, request(fields).into()).await?.await?;
    }
    let looking = async {
        loop {
            let listed = system.types("case list --workflow case").await?.exits(0)?;
            if listed.json()?["sagas"]
                .as_array()
                .is_some_and(|sagas| sagas.len() == 2)
            {
                return listed.says("reason: must not be empty");
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(BOUND, looking)
        .await
        .context("not kept")??;
    let record = system
        .record(&deposit.saga_id())
        .await?
        .context("a record")?
        .0;
    ensure!(!record.is_held(), "{record:#?}");
    Ok(())
}
