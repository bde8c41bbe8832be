//! What a wallet holds of one movement: where it is held, its offset, its corrections.

use contracts::command::Movement;
use contracts::id::Region;
use contracts::reply::{Effect, OperationState};

use super::fixture::{
    compensated, completed, credit, crediting, customer, euro, moved, offset, operation, rules,
    saga,
};
use super::{check, record};
use crate::reconcile::difference::{Difference, Kind};
use crate::reconcile::judge::judge;
use crate::reconcile::lot::{corrected, correction};
use crate::reconcile::sides::{OperationSide, Said, Sides};
use crate::saga::record::Status;

fn in_asia(mut operation: OperationSide) -> OperationSide {
    operation.region = Region::new("asia").expect("region");
    operation
}

/// A correction that a person has booked.
fn corrects(number: u32, movement: Movement, name: &str, minor: i64) -> OperationSide {
    let effect = Effect::Moved {
        customer: customer(name),
        movement,
        money: euro(minor),
        balance: euro(0),
    };
    let id = correction(&saga().own_operation(), number);
    let mut side = operation(id, OperationState::Applied, Some(effect));
    side.view.saga_id = None;
    assert_eq!(side.saga_key(), saga().key(), "it meets its saga");
    side
}

fn only(sides: &Sides) -> Difference {
    let mut found = judge(sides, &rules());
    assert_eq!(found.len(), 1, "{found:#?}");
    found.remove(0)
}

#[test]
fn the_same_movement_in_another_region_is_one_too_many() {
    use Kind::*;
    let elsewhere = || in_asia(credit(OperationState::Applied));
    for (what, sides) in [
        ("completed", completed()),
        ("turned back", compensated()),
        ("open", crediting()),
    ] {
        check(
            what,
            sides,
            |s| s.operations.push(elsewhere()),
            &[ExtraMovement],
        );
    }
    check(
        "before the own one",
        completed(),
        |s| s.operations.insert(0, elsewhere()),
        &[ExtraMovement],
    );
    check(
        "only there",
        completed(),
        |s| s.operations = vec![elsewhere()],
        &[WalletMissing, ExtraMovement],
    );
    check(
        "offset there",
        completed(),
        |s| s.operations.push(in_asia(credit(OperationState::Reverted))),
        &[],
    );
    check(
        "offset only elsewhere",
        compensated(),
        |s| s.operations = vec![credit(OperationState::Applied), in_asia(offset())],
        &[RevertMissing],
    );
    let mut sides = completed();
    sides.operations.push(elsewhere());
    assert_eq!(only(&sides).region.expect("a region").as_str(), "asia");
}

#[test]
fn an_offset_is_as_large_as_what_it_offsets() {
    use Kind::*;
    let other = |name: &str, minor| {
        let effect = Effect::Offset {
            target: saga().own_operation(),
            customer: customer(name),
            movement: Movement::Debit,
            money: euro(minor),
            balance: euro(0),
        };
        let id = saga().own_operation().revert();
        operation(id, OperationState::Applied, Some(effect))
    };
    for (name, minor) in [("cust", 1_200), ("else", 1_250)] {
        let mut sides = compensated();
        sides.operations[1] = other(name, minor);
        let found = only(&sides);
        assert_eq!(found.kind, WalletDiffers, "{found:#?}");
    }
    check(
        "without its movement",
        compensated(),
        |s| s.operations = vec![offset()],
        &[WalletMissing],
    );
    // What is booked for either makes it right.
    let mut sides = compensated();
    sides.operations[1] = other("cust", 1_200);
    let fix = only(&sides).fix.command;
    assert_eq!(
        fix,
        "region-agent wallet book deposit/acme/p1/correction:1 cust debit 0.50 EUR --decimals 2 --reason TEXT"
    );
    sides
        .operations
        .push(corrects(1, Movement::Debit, "cust", 50));
    assert_eq!(judge(&sides, &rules()), []);
    let mut sides = compensated();
    sides.operations[1] = other("else", 1_250);
    for (number, movement, name) in [(1, Movement::Debit, "cust"), (2, Movement::Credit, "else")] {
        let fix = only(&sides).fix.command;
        let expected =
            format!("region-agent wallet book deposit/acme/p1/correction:{number} {name} ");
        assert!(fix.starts_with(&expected), "{fix}");
        sides
            .operations
            .push(corrects(number, movement, name, 1_250));
    }
    assert_eq!(judge(&sides, &rules()), []);
}

#[test]
fn a_correction_counts_as_the_movement_that_it_replaces() {
    use Kind::*;
    // Another sum: offset, then booked as it must be.
    let mut sides = completed();
    let id = saga().own_operation();
    sides.operations = vec![operation(
        id.clone(),
        OperationState::Applied,
        Some(moved("cust", 1_350)),
    )];
    let first = only(&sides);
    assert_eq!(first.kind, WalletDiffers);
    assert_eq!(
        first.fix.command,
        "region-agent wallet revert deposit/acme/p1 --reason TEXT"
    );
    sides.operations[0].view.state = OperationState::Reverted;
    let second = only(&sides);
    assert_eq!(second.kind, WalletMissing);
    assert_eq!(
        second.fix.command,
        "region-agent wallet book deposit/acme/p1/correction:1 cust credit 12.50 EUR --decimals 2 --reason TEXT"
    );
    // A wrong one is corrected by the next.
    sides
        .operations
        .push(corrects(1, Movement::Credit, "cust", 1_000));
    let third = only(&sides).fix.command;
    let next = "region-agent wallet book deposit/acme/p1/correction:2 cust credit 2.50 EUR";
    assert!(third.starts_with(next), "{third}");
    sides
        .operations
        .push(corrects(2, Movement::Credit, "cust", 250));
    assert_eq!(judge(&sides, &rules()), []);
    // What was refused answers for its id as well.
    let refused = operation(id.clone(), OperationState::Rejected, None);
    let tombstoned = operation(id, OperationState::Tombstoned, None);
    for answered in [refused, tombstoned] {
        let mut sides = completed();
        sides.operations = vec![answered];
        let fix = only(&sides).fix.command;
        assert!(fix.contains("/correction:1 cust credit 12.50 "), "{fix}");
    }
    check(
        "corrected without need",
        completed(),
        |s| {
            s.operations
                .push(corrects(1, Movement::Credit, "cust", 1_250))
        },
        &[ExtraMovement],
    );
    check(
        "elsewhere",
        completed(),
        |s| {
            s.operations
                .push(in_asia(corrects(1, Movement::Credit, "cust", 1_250)));
        },
        &[ExtraMovement],
    );
}

#[test]
fn a_revert_that_the_wallet_has_answered_is_not_asked_for_again() {
    let mut sides = compensated();
    let id = saga().own_operation();
    let forbade = Effect::Tombstoned { target: id.clone() };
    sides.operations = vec![
        credit(OperationState::Applied),
        operation(id.revert(), OperationState::Applied, Some(forbade)),
    ];
    let found = only(&sides);
    assert_eq!(found.kind, Kind::RevertMissing);
    assert_eq!(
        found.fix.command,
        "region-agent wallet book deposit/acme/p1/correction:1 cust debit 12.50 EUR --decimals 2 --reason TEXT"
    );
    sides
        .operations
        .push(corrects(1, Movement::Debit, "cust", 1_250));
    assert_eq!(judge(&sides, &rules()), []);
}

#[test]
fn a_movement_of_an_open_saga_is_booked_only_where_the_saga_cannot_undo_it_twice() {
    let open = |undo, operations: Vec<OperationSide>| {
        let mut sides = crediting();
        record(&mut sides).moves[0].forward = Said::Applied;
        record(&mut sides).moves[0].undo = undo;
        record(&mut sides).status = match undo {
            Said::Nothing => Status::Running,
            Said::Open | Said::Applied | Said::NotApplied => Status::Compensating,
        };
        sides.operations = operations;
        only(&sides).fix.command
    };
    let book = open(Said::Nothing, Vec::new());
    let own = "region-agent wallet book deposit/acme/p1 cust credit 12.50 EUR";
    assert!(book.starts_with(own), "{book}");
    let show = "orchestrator saga show deposit/acme/p1 --history";
    assert_eq!(open(Said::Open, Vec::new()), show);
    let offset = vec![credit(OperationState::Reverted)];
    assert_eq!(open(Said::Nothing, offset), show);
}

#[test]
fn ids_of_corrections_are_told_from_others() {
    let id = saga().own_operation();
    assert_eq!(corrected(correction(&id, 7).as_str()), Some(id.as_str()));
    for other in [
        "deposit/acme/p1",
        "deposit/acme/p1/correction:",
        "a/correction:x",
    ] {
        assert_eq!(corrected(other), None, "{other}");
    }
}
