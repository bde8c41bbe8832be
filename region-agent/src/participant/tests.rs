//! Table tests of [`super::decide`]: what is known, what arrives, what is answered and written.

mod fixture;

use super::*;
use contracts::command::WalletUpdate;
use fixture::*;

#[test]
fn an_update_moves_money_or_is_refused_for_good() {
    let keep = TargetChange::Keep;
    let header = header_of("op");
    let applied = |movement, minor, balance, signed| {
        Expected::Record(moved("op", movement, minor, balance), signed, keep)
    };
    for (account, command, expected) in [
        (
            AccountState::default(),
            credit(100),
            applied(Movement::Credit, 100, 100, 100),
        ),
        (
            holding(50),
            credit(100),
            applied(Movement::Credit, 100, 150, 100),
        ),
        (
            holding(100),
            debit(100),
            applied(Movement::Debit, 100, 0, -100),
        ),
        (
            holding(i64::MAX - 1),
            credit(1),
            applied(Movement::Credit, 1, i64::MAX, 1),
        ),
        (
            holding(99),
            debit(100),
            Expected::Final(RejectCode::InsufficientFunds),
        ),
        (
            holding(0),
            debit(i64::MAX),
            Expected::Final(RejectCode::InsufficientFunds),
        ),
        (
            AccountState::default(),
            debit(1),
            Expected::Final(RejectCode::InsufficientFunds),
        ),
        (
            holding(i64::MAX),
            credit(1),
            Expected::Final(RejectCode::BalanceOverflow),
        ),
        (
            holding(1),
            credit(i64::MAX),
            Expected::Final(RejectCode::BalanceOverflow),
        ),
        (
            AccountState {
                wallet: WalletState::Closed,
                ..holding(50)
            },
            credit(1),
            Expected::Final(RejectCode::WalletClosed),
        ),
        (
            AccountState {
                sole_currency: Some(CurrencyCode::new("USD").expect("code")),
                balance: None,
                wallet: WalletState::Open,
            },
            credit(1),
            Expected::Final(RejectCode::WrongCurrency),
        ),
        (
            AccountState {
                balance: Some(money_in("EUR", 3, 5)),
                ..holding(0)
            },
            credit(1),
            Expected::Final(RejectCode::WrongCurrency),
        ),
    ] {
        check(&with_account(account), &header, &command, &expected);
    }
}

#[test]
fn a_stored_answer_is_repeated_late_and_with_an_old_fence() {
    let answers = [
        (
            OperationState::Applied,
            moved("op", Movement::Credit, 100, 100),
        ),
        (
            OperationState::Reverted,
            moved("op", Movement::Credit, 100, 100),
        ),
        (
            OperationState::Rejected,
            WalletReply::Rejected {
                operation_id: id("op"),
                code: RejectCode::WalletClosed,
                message: "as it was said then".to_owned(),
            },
        ),
    ];
    for (state, reply) in answers {
        let known = Known {
            operation: Some(stored(&credit(100), state, reply.clone())),
            seen_fence: 9,
            ..Known::default()
        };
        let header = CommandHeader {
            deadline: at(NOW - 500),
            fence: 1,
            ..header_of("op")
        };
        check(&known, &header, &credit(100), &Expected::Repeat(reply));
    }
}

#[test]
fn a_memo_makes_no_other_command() {
    let reply = moved("op", Movement::Credit, 100, 100);
    let known = Known {
        operation: Some(stored(&credit(100), OperationState::Applied, reply.clone())),
        ..Known::default()
    };
    let WalletCommand::Update(update) = credit(100) else {
        unreachable!()
    };
    let command = WalletCommand::Update(WalletUpdate {
        memo: Some("again".to_owned()),
        ..update
    });
    check(&known, &header_of("op"), &command, &Expected::Repeat(reply));
}

#[test]
fn other_parameters_are_a_conflict_that_names_them() {
    let first = credit(100);
    let other_customer = WalletCommand::Update(WalletUpdate {
        customer: CustomerId::new("C-1").expect("id"),
        movement: Movement::Debit,
        money: money_in("USD", 3, 1),
        memo: None,
    });
    for (stored_command, command, fields) in [
        (&first, credit(101), vec!["money.amount_minor"]),
        (&first, debit(100), vec!["movement"]),
        (
            &first,
            move_money(Movement::Credit, money_in("EUR", 3, 100)),
            vec!["money.exponent"],
        ),
        (
            &first,
            other_customer,
            vec![
                "customer",
                "movement",
                "money.amount_minor",
                "money.currency",
                "money.exponent",
            ],
        ),
        (&first, revert("x"), vec!["kind"]),
        (&revert("x"), revert("y"), vec!["target"]),
        (&revert("x"), credit(100), vec!["kind"]),
    ] {
        for state in [
            OperationState::Applied,
            OperationState::Rejected,
            OperationState::Reverted,
        ] {
            let known = Known {
                operation: Some(stored(stored_command, state, tombstoned("op"))),
                ..Known::default()
            };
            let conflict = WalletReply::Conflict {
                operation_id: id("op"),
                fields: fields.iter().map(|field| (*field).to_owned()).collect(),
            };
            check(
                &known,
                &header_of("op"),
                &command,
                &Expected::Repeat(conflict),
            );
        }
    }
}

#[test]
fn what_was_reverted_before_it_arrived_is_cancelled() {
    let cancelled = WalletReply::Cancelled {
        operation_id: id("op"),
    };
    let known = Known {
        operation: Some(StoredOperation {
            parameters: Parameters::NeverSeen,
            state: OperationState::Tombstoned,
            reply: cancelled.clone(),
        }),
        account: holding(1_000),
        ..Known::default()
    };
    for command in [credit(100), debit(1), revert("x")] {
        check(
            &known,
            &header_of("op"),
            &command,
            &Expected::Repeat(cancelled.clone()),
        );
    }
}

#[test]
fn a_revert_offsets_forbids_or_finds_nothing_to_do() {
    let target = |command: &WalletCommand, state| {
        Some(stored(
            command,
            state,
            moved("op", Movement::Credit, 100, 100),
        ))
    };
    let first_revert = stored(
        &revert("op"),
        OperationState::Applied,
        offset_reply("r-1", Movement::Debit, 100, 7),
    );
    let nothing = |change| Expected::Record(tombstoned("r"), 0, change);
    for (known, expected) in [
        (Known::default(), nothing(TargetChange::Tombstone)),
        (
            Known {
                target: target(&credit(100), OperationState::Applied),
                account: holding(130),
                ..Known::default()
            },
            Expected::Record(
                offset_reply("r", Movement::Debit, 100, 30),
                -100,
                TargetChange::MarkReverted,
            ),
        ),
        (
            Known {
                target: target(&debit(100), OperationState::Applied),
                account: holding(30),
                ..Known::default()
            },
            Expected::Record(
                offset_reply("r", Movement::Credit, 100, 130),
                100,
                TargetChange::MarkReverted,
            ),
        ),
        (
            Known {
                target: target(&credit(100), OperationState::Rejected),
                ..Known::default()
            },
            nothing(TargetChange::Keep),
        ),
        (
            Known {
                target: Some(StoredOperation {
                    parameters: Parameters::NeverSeen,
                    state: OperationState::Tombstoned,
                    reply: tombstoned("r-1"),
                }),
                ..Known::default()
            },
            nothing(TargetChange::Keep),
        ),
        // Never twice, whatever the balance; the answer is what the first revert did.
        (
            Known {
                target: target(&credit(100), OperationState::Reverted),
                offset_by: Some(first_revert),
                account: holding(1_000),
                ..Known::default()
            },
            Expected::Record(
                offset_reply("r", Movement::Debit, 100, 7),
                0,
                TargetChange::Keep,
            ),
        ),
        (
            Known {
                target: target(&credit(100), OperationState::Reverted),
                ..Known::default()
            },
            Expected::Refuse("unavailable"),
        ),
        (
            Known {
                target: target(&revert("x"), OperationState::Applied),
                ..Known::default()
            },
            Expected::Refuse("invalid"),
        ),
    ] {
        check(&known, &header_of("r"), &revert("op"), &expected);
    }
}

#[test]
fn a_refused_revert_may_be_tried_again() {
    for (command, account) in [
        (credit(100), holding(99)),
        (
            credit(100),
            AccountState {
                wallet: WalletState::Closed,
                ..holding(500)
            },
        ),
        (debit(100), holding(i64::MAX)),
    ] {
        let known = Known {
            target: Some(stored(
                &command,
                OperationState::Applied,
                moved("op", Movement::Credit, 100, 100),
            )),
            account,
            ..Known::default()
        };
        check(
            &known,
            &header_of("r"),
            &revert("op"),
            &Expected::Refuse("rejected"),
        );
    }
}

#[test]
fn nothing_new_is_executed_late_or_with_a_lower_fence() {
    let fenced = Known {
        seen_fence: 6,
        account: holding(500),
        ..Known::default()
    };
    let equal = Known {
        seen_fence: 5,
        ..fenced.clone()
    };
    let late = |seconds| CommandHeader {
        deadline: at(NOW - seconds),
        ..header_of("op")
    };
    let unfenced = CommandHeader {
        fence: 0,
        ..header_of("op")
    };
    let no_saga = CommandHeader {
        saga_id: None,
        ..unfenced.clone()
    };
    let applied = Expected::Record(moved("op", Movement::Credit, 1, 501), 1, TargetChange::Keep);
    for command in [credit(1), revert("x")] {
        check(
            &fenced,
            &header_of("op"),
            &command,
            &Expected::Refuse("stale"),
        );
        check(&fenced, &unfenced, &command, &Expected::Refuse("stale"));
        check(&equal, &late(0), &command, &Expected::Refuse("expired"));
        check(&equal, &late(500), &command, &Expected::Refuse("expired"));
        check(&fenced, &late(500), &command, &Expected::Refuse("stale"));
    }
    check(&equal, &header_of("op"), &credit(1), &applied);
    check(&fenced, &no_saga, &credit(1), &applied);
}

#[test]
fn what_no_wallet_could_execute_is_invalid() {
    let huge_fence = CommandHeader {
        fence: u64::MAX,
        ..header_of("op")
    };
    let known = with_account(holding(500));
    let WalletCommand::Update(update) = credit(1) else {
        unreachable!()
    };
    let long_memo = WalletCommand::Update(WalletUpdate {
        memo: Some("x".repeat(MAX_MEMO_LEN + 1)),
        ..update
    });
    let invalid = Expected::Refuse("invalid");
    for (header, command) in [
        (header_of("op"), credit(0)),
        (header_of("op"), credit(-1)),
        (header_of("op"), debit(i64::MIN)),
        (header_of("op"), revert("op")),
        (header_of("op"), long_memo),
        (huge_fence, credit(1)),
    ] {
        check(&known, &header, &command, &invalid);
    }
}
