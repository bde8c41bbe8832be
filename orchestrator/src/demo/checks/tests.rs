//! A finding that is right passes every check; each way to be wrong fails the checks that must see it.

use super::sagas::message_id;
use super::{RULES, all};
use crate::callback::PaymentIdentity;
use crate::demo::expected::{Expected, ExpectedDeposit};
use crate::demo::found::{Found, IntakeFound, LedgerFound, Reconciled, Told, WalletFound};
use crate::demo::story::{self, CUT_OFF, Ends};
use crate::doctor;
use crate::payments::{Payment, PaymentStatus};
use crate::saga::record::{CaseReason, SagaRecord, Status};
use crate::saga::{self, Turn};
use contracts::command::Movement;
use contracts::event::DepositCompleted;
use contracts::id::{CustomerId, ExternalId, OperationId, Provider, Region, SagaId};
use contracts::money::Money;
use contracts::quote::{Quote, Rounding};
use contracts::reply::EntryView;
use jiff::Timestamp;
use region_agent::ledger::{CustomerBalance, LedgerStats};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

const NOW: Timestamp = Timestamp::UNIX_EPOCH;

/// The names of the checks that fail.
fn failing(expected: &Expected, found: &Found) -> Vec<&'static str> {
    all(expected, found)
        .iter()
        .filter(|check| !check.ok)
        .map(|check| check.name)
        .collect()
}

#[test]
fn what_is_as_it_must_be_passes_every_check() {
    let expected = Expected::of_the_story().expect("story");
    let found = as_expected(&expected);
    let wrong: Vec<_> = all(&expected, &found)
        .into_iter()
        .filter(|check| !check.ok)
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// A way to be wrong, and a check that must see it.
type Sabotage = (&'static str, fn(&mut Found));

const SABOTAGE: &[Sabotage] = &[
    ("every callback is accounted for", |found| {
        found.told.callbacks -= 1;
    }),
    ("every callback is accounted for", |found| {
        found.told.repeats += 1;
    }),
    ("every callback is accounted for", |found| {
        saga(found, "deposit/paylink/pl-3").seen.clear();
    }),
    ("every callback is accounted for", |found| {
        found.told.signals.push(999);
    }),
    ("every saga ended as it must", |found| {
        saga(found, "deposit/paylink/pl-3").status = Status::Failed;
    }),
    ("every saga ended as it must", |found| {
        let mut stray = saga(found, "deposit/paylink/pl-3").clone();
        stray.saga_id = id("deposit/paylink/stray");
        found.records.insert(stray.saga_id.key(), stray);
    }),
    ("nothing is open but the expected cases", |found| {
        saga(found, "deposit/paylink/pl-4").status = Status::Waiting;
    }),
    ("nothing is open but the expected cases", |found| {
        let case = case(3, 0, "more");
        found.records.insert(case.saga_id.key(), case);
    }),
    ("completed deposits = credits = events", |found| {
        ledger(found, "eu").stats.standing_credits += 1;
    }),
    ("completed deposits = credits = events", |found| {
        found.events.pop();
    }),
    ("completed deposits = credits = events", |found| {
        saga(found, "deposit/paylink/pl-3").status = Status::Compensated;
    }),
    ("repeats of known facts were absorbed", |found| {
        saga(found, "deposit/paylink/pl-3").duplicates += 1;
    }),
    ("balances are what was paid", |found| {
        let balance = &mut ledger(found, "asia").stats.balances[0].balance;
        *balance = Money::new(balance.amount_minor() + 1, balance.currency());
    }),
    ("balances are what was paid", |found| {
        ledger(found, "asia").stats.balances.pop();
    }),
    ("agents show the same balances", |found| {
        wallet(found, "eu", "ana").balances.clear();
    }),
    ("each credit belongs to one saga", |found| {
        let wallet = wallet(found, "eu", "ana");
        let twice = wallet.entries[0].clone();
        wallet.entries.push(twice);
    }),
    ("each credit belongs to one saga", |found| {
        wallet(found, "eu", "greta").entries.clear();
    }),
    ("each credit belongs to one saga", |found| {
        wallet(found, "eu", "greta").entries[0].movement = Movement::Debit;
    }),
    ("a payment told twice was credited once", |found| {
        let wallet = wallet(found, "eu", "ana");
        let twice = wallet.entries.clone();
        wallet.entries.extend(twice);
    }),
    ("a refused deposit left nothing in the wallet", |found| {
        let any = ledger(found, "asia").stats.balances[0].balance;
        let yen = Money::new(900, any.currency());
        ledger(found, "asia").stats.balances.push(CustomerBalance {
            customer: customer("haru"),
            balance: yen,
        });
    }),
    ("a refused deposit left nothing in the wallet", |found| {
        ledger(found, "asia").stats.rejected = 0;
    }),
    ("ledgers balance by double entry", |found| {
        ledger(found, "default")
            .discrepancies
            .push("operation x: left claimed".to_owned());
    }),
    ("events say what was credited", |found| {
        found.events[0].customer = customer("somebody");
    }),
    ("the payments table agrees", |found| {
        found.payments[0].status = PaymentStatus::Pending;
    }),
    ("the payments table agrees", |found| {
        let credited = found.payments[0].credited.expect("credited");
        found.payments[0].credited = Some(Money::new(1, credited.currency()));
    }),
    ("what cannot be read is a case with its body", |found| {
        for record in found.records.values_mut() {
            if let Some(case) = &mut record.case {
                case.evidence["body"] = Value::Null;
            }
        }
    }),
    (
        "the directory decided where nobody claimed a region",
        |found| {
            found.cached_regions.clear();
        },
    ),
    ("the intake is fully acknowledged", |found| {
        found.intake.unacknowledged = 1;
    }),
    ("the intake is fully acknowledged", |found| {
        found.intake.undelivered = 1;
    }),
    ("reconcile finds no difference", |found| {
        let differences = &mut found.reconciled.differences;
        differences.push("event_missing of deposit/acme/p1".to_owned());
    }),
    ("the doctor finds nothing unsafe", |found| {
        let check = doctor::Check::not_safe("sync", "every two minutes", "sync always");
        found.doctor.checks.push(check);
    }),
];

#[test]
fn each_way_to_be_wrong_is_seen() {
    let expected = Expected::of_the_story().expect("story");
    for (number, (check, sabotage)) in SABOTAGE.iter().enumerate() {
        let mut found = as_expected(&expected);
        sabotage(&mut found);
        let failing = failing(&expected, &found);
        assert!(failing.contains(check), "{number}: {check}: {failing:?}");
    }
}

#[test]
fn each_check_can_fail() {
    let tried: BTreeSet<&str> = SABOTAGE.iter().map(|(check, _)| *check).collect();
    for (name, _) in RULES {
        assert!(tried.contains(name), "{name}");
    }
}

/// What a run of the story finds when nothing is wrong.
fn as_expected(expected: &Expected) -> Found {
    let mut found = Found {
        told: Told {
            callbacks: expected.callbacks,
            stored: Vec::new(),
            repeats: expected.exact_repeats(),
            signals: vec![500],
        },
        records: BTreeMap::new(),
        ledgers: BTreeMap::new(),
        events: Vec::new(),
        payments: Vec::new(),
        intake: IntakeFound {
            messages: u64::try_from(expected.distinct_callbacks + 1).expect("count"),
            undelivered: 0,
            unacknowledged: 0,
        },
        cached_regions: story::DIRECTORY
            .iter()
            .map(|(customer, region)| ((*customer).to_owned(), (*region).to_owned()))
            .collect(),
        doctor: doctor::Report {
            checks: vec![doctor::Check::ok("sync", "always")],
        },
        reconciled: Reconciled::default(),
    };
    for region in [story::DEFAULT, story::EU, story::ASIA] {
        found.ledgers.insert(region.to_owned(), empty_ledger());
    }
    for deposit in &expected.deposits {
        add(&mut found, deposit);
    }
    for (wallet, sum) in &expected.wallets {
        ledger(&mut found, &wallet.region)
            .stats
            .balances
            .push(CustomerBalance {
                customer: customer(&wallet.customer),
                balance: *sum,
            });
        wallet_of(&mut found, &wallet.region, &wallet.customer)
            .balances
            .push(*sum);
    }
    tell(&mut found, expected);
    found
}

/// Stores as many messages as the story has, and has sagas and cases note them.
fn tell(found: &mut Found, expected: &Expected) {
    let more = expected.items - expected.distinct_callbacks;
    let mut messages = vec![message_id(500, 0)];
    for number in 1..=expected.distinct_callbacks {
        let sequence = u64::try_from(number).expect("number");
        let items = if number <= more { 2 } else { 1 };
        found.told.stored.push((sequence, items));
        messages.extend((0..items).map(|item| message_id(sequence, item)));
    }
    for case in [case(1, 1, "signature_invalid"), case(2, 0, "bad_body")] {
        found.records.insert(case.saga_id.key(), case);
    }
    messages.retain(|message| message != "intake:1:1" && message != "intake:2");
    let sagas: Vec<String> = found.sagas().map(|saga| saga.saga_id.key()).collect();
    for (message, key) in messages.into_iter().zip(sagas.iter().cycle()) {
        found.records.get_mut(key).expect("saga").seen.push(message);
    }
    let first = found.records.get_mut(&sagas[0]).expect("saga");
    first.duplicates = expected.known_facts;
}

fn add(found: &mut Found, deposit: &ExpectedDeposit) {
    for (saga_id, status) in &deposit.sagas {
        let record = record(saga_id.clone(), *status);
        found.records.insert(saga_id.key(), record);
    }
    let (region, name) = (&deposit.wallet.region, &deposit.wallet.customer);
    let stats = &mut ledger(found, region).stats;
    if deposit.ends == Ends::TurnedBack {
        stats.rejected += 1;
    }
    let status = match deposit.ends {
        Ends::Credited | Ends::CreditedAtSecondTry => PaymentStatus::Successful,
        Ends::Refused => PaymentStatus::Failed,
        Ends::TurnedBack => PaymentStatus::Cancelled,
        Ends::Distrusted => return,
    };
    let mut payment = payment(deposit, status);
    if deposit.is_credited() {
        payment.credited = Some(deposit.credited);
        stats.standing_credits += 1;
        let saga_id = deposit.sagas.last().expect("saga").0.clone();
        wallet_of(found, region, name).entries.push(EntryView {
            operation_id: OperationId::new(saga_id.as_str()).expect("id"),
            movement: Movement::Credit,
            money: deposit.credited,
            booked_at: NOW,
        });
        found.events.push(event(deposit, saga_id));
    }
    found.payments.push(payment);
}

fn record(saga_id: SagaId, status: Status) -> SagaRecord {
    let turn = Turn {
        now: NOW,
        replica: "test",
        rules: &saga::rules::DEFAULT,
    };
    let mut record = saga::case_record(
        saga_id,
        CaseReason::Poison,
        String::new(),
        Value::Null,
        turn,
    );
    "deposit".clone_into(&mut record.workflow);
    record.status = status;
    record.case = None;
    record
}

fn case(sequence: u64, item: usize, code: &str) -> SagaRecord {
    let turn = Turn {
        now: NOW,
        replica: "test",
        rules: &saga::rules::DEFAULT,
    };
    let evidence = json!({
        "sequence": sequence, "body": { "text": CUT_OFF },
        "unreadable": { "code": code, "item": item },
    });
    let saga_id = SagaId::from_parts("case", &["intake", &format!("{sequence}-{item}")]);
    saga::case_record(
        saga_id,
        CaseReason::Unreadable,
        String::new(),
        evidence,
        turn,
    )
}

fn payment(deposit: &ExpectedDeposit, status: PaymentStatus) -> Payment {
    Payment {
        payment_id: format!("pay_{}", deposit.external_id),
        identity: PaymentIdentity {
            provider: Provider::new(deposit.provider).expect("provider"),
            account: String::new(),
            external_id: ExternalId::new(deposit.external_id).expect("id"),
            capture_id: None,
        },
        merchant_reference: None,
        status,
        saga_id: None,
        customer: None,
        region: None,
        expected: None,
        paid: None,
        wallet_currency: None,
        quote: None,
        credited: None,
        reason: None,
        created_at: NOW,
        updated_at: NOW,
    }
}

fn event(deposit: &ExpectedDeposit, saga_id: SagaId) -> DepositCompleted {
    DepositCompleted {
        saga_id,
        payment_id: String::new(),
        provider: deposit.provider.to_owned(),
        external_id: deposit.external_id.to_owned(),
        customer: customer(&deposit.wallet.customer),
        region: Region::new(deposit.wallet.region.as_str()).expect("region"),
        paid: deposit.credited,
        credited: deposit.credited,
        quote: Quote {
            source: deposit.credited,
            target: deposit.credited,
            rate: "1".to_owned(),
            rate_source: "identity".to_owned(),
            quoted_at: NOW,
            rounding: Rounding::HalfEven,
        },
        completed_at: NOW,
    }
}

fn empty_ledger() -> LedgerFound {
    LedgerFound {
        stats: LedgerStats {
            standing_credits: 0,
            standing_debits: 0,
            reverted: 0,
            rejected: 0,
            tombstones: 0,
            balances: Vec::new(),
        },
        discrepancies: Vec::new(),
        wallets: BTreeMap::new(),
    }
}

fn ledger<'a>(found: &'a mut Found, region: &str) -> &'a mut LedgerFound {
    found.ledgers.get_mut(region).expect("region")
}

fn wallet_of<'a>(found: &'a mut Found, region: &str, customer: &str) -> &'a mut WalletFound {
    ledger(found, region)
        .wallets
        .entry(customer.to_owned())
        .or_default()
}

fn wallet<'a>(found: &'a mut Found, region: &str, customer: &str) -> &'a mut WalletFound {
    let wallets = &mut ledger(found, region).wallets;
    wallets.get_mut(customer).expect("wallet")
}

fn saga<'a>(found: &'a mut Found, saga_id: &str) -> &'a mut SagaRecord {
    found.records.get_mut(&id(saga_id).key()).expect("saga")
}

fn id(text: &str) -> SagaId {
    SagaId::new(text).expect("saga id")
}

fn customer(text: &str) -> CustomerId {
    CustomerId::new(text).expect("customer")
}
