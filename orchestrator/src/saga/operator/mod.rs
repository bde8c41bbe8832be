//! What people do to a saga by hand.
//!
//! Each request is legal or refused by one table (`table`) and by what is open in the record
//! (`questions`); a refusal says why, and what is allowed. Whatever comes of it is noted in the record
//! and in the audit stream, in the same write. Nothing here looks at anything but its arguments, so what
//! [`preview()`] says will happen is what happens.

mod acts;
mod money;
mod preview;
mod questions;
mod table;

use contracts::audit::{AuditEntry, OperatorAnswer};
use contracts::intake::{OperatorRequest, OperatorVerb};

use super::action::{Commit, Decision, Ignored};
use super::by_hand::{Known, Proposal};
use super::input::Operator;
use super::record::{Direction, SagaRecord, Status};
use super::{Turn, Workflow, store};

pub use money::{Delta, amount_at_risk};
pub use preview::{Preview, preview};
pub use questions::{OpenOperation, open_operations};
pub use table::{Verb, next_verbs};

/// Decides on an operator's request. `workflow` is that of the saga; there is none for a record that is
/// nothing but a case.
pub(super) fn on_operator(
    workflow: Option<&Workflow>,
    mut record: SagaRecord,
    operator: Operator,
    turn: Turn<'_>,
) -> Decision {
    if record.seen.contains(&operator.message_id) {
        return Decision::Ignore(Box::new(record), Ignored::Seen);
    }
    record.note_seen(&operator.message_id);
    let request = operator.request;
    let before = record.status;
    match record.by_hand.known(&request) {
        Known::New => {}
        Known::Repeated => {
            record.duplicates += 1;
            record.cause = format!("request {} repeated", request.id);
            return store(record, Vec::new());
        }
        Known::Taken => {
            let why = format!("the id {} stands for another request", request.id);
            return refuse(record, &request, why, turn);
        }
    }
    match act(workflow, &record, &request, turn) {
        Ok(Acted::Done(mut commit)) => {
            let terminal = commit.record.status.is_terminal();
            // It is decided upon, or there is nothing left to decide.
            let agreed = matches!(request.verb, OperatorVerb::Approve { .. });
            if agreed || settles(&record, &request.verb) || terminal {
                commit.record.by_hand.proposal = None;
            }
            // What the decision itself says of this revision goes before: an end, a turn, a new case.
            if !terminal && !has_opened_case(&record, &commit.record) {
                commit.record.cause = describe(&request);
            }
            conclude(*commit, before, &request, OperatorAnswer::Accepted, turn)
        }
        Ok(Acted::Proposed(why, pinned)) => {
            record.by_hand.proposal = Some(Proposal {
                request: *pinned,
                at: turn.now,
            });
            record.cause = format!("{} waits for a second person", describe(&request));
            let answer = OperatorAnswer::Proposed { why };
            match store(record, Vec::new()) {
                Decision::Commit(commit) => conclude(*commit, before, &request, answer, turn),
                ignored @ Decision::Ignore(..) => ignored,
            }
        }
        Err(why) => refuse(record, &request, why, turn),
    }
}

/// Whether the case of `after` was opened since `before`.
fn has_opened_case(before: &SagaRecord, after: &SagaRecord) -> bool {
    let of = |record: &SagaRecord| {
        let case = record.case.as_ref()?;
        Some((case.reason, case.since, case.message.clone()))
    };
    after.case.is_some() && of(before) != of(after)
}

/// What came of a request that is not refused.
enum Acted {
    Done(Box<Commit>),
    /// Waits for a second person: why, and the request with the operation it is about.
    Proposed(String, Box<OperatorRequest>),
}

/// Tries a request on a copy of the record.
fn act(
    workflow: Option<&Workflow>,
    record: &SagaRecord,
    request: &OperatorRequest,
    turn: Turn<'_>,
) -> Result<Acted, String> {
    request.check()?;
    table::check(record, &request.verb, turn)?;
    let OperatorVerb::Approve { request: id } = &request.verb else {
        // Whoever agrees later agrees to this operation, whatever is open by then.
        let pinned = acts::pinned(record, request, turn);
        let commit = acts::perform(workflow, record.clone(), &pinned, turn)?;
        return match second_person(record, &pinned, turn)? {
            Some(why) => Ok(Acted::Proposed(why, Box::new(pinned))),
            None => Ok(Acted::Done(commit)),
        };
    };
    let Some(proposal) = &record.by_hand.proposal else {
        return Err("no request waits for a second person".to_owned());
    };
    if proposal.request.id != *id {
        return Err(format!(
            "the request that waits for a second person is {}, not {id}",
            proposal.request.id
        ));
    }
    if proposal.is_by(&request.by) {
        return Err(format!(
            "{} has asked for it and cannot be the second person",
            proposal.request.by
        ));
    }
    // What was legal then need not be legal now.
    table::check(record, &proposal.request.verb, turn)?;
    let mut agreed = proposal.request.clone();
    agreed.reason = format!("{}; agreed by {}", agreed.reason, request.by);
    acts::perform(workflow, record.clone(), &agreed, turn).map(Acted::Done)
}

/// Whether, and why, this request needs a second person; an error when it waits for one already.
fn second_person(
    record: &SagaRecord,
    request: &OperatorRequest,
    turn: Turn<'_>,
) -> Result<Option<String>, String> {
    if !settles(record, &request.verb) {
        return Ok(None);
    }
    let limits = &turn.rules.second_person_above;
    let Some(above) = amount_at_risk(record).into_iter().find(|money| {
        limits
            .get(&money.currency().code())
            .is_some_and(|limit| money.amount_minor() > *limit)
    }) else {
        return Ok(None);
    };
    if let Some(proposal) = &record.by_hand.proposal
        && proposal.request.verb == request.verb
    {
        let first = &proposal.request;
        return Err(format!(
            "{} has asked for this already; a second person agrees with: approve --request {}",
            first.by, first.id
        ));
    }
    Ok(Some(format!(
        "{above} are at risk, above the limit for one person; somebody other than {} agrees with: approve \
         --request {}",
        request.by, request.id
    )))
}

/// Notes a refusal: it changes nothing else, and is never silent.
fn refuse(
    mut record: SagaRecord,
    request: &OperatorRequest,
    why: String,
    turn: Turn<'_>,
) -> Decision {
    let before = record.status;
    record.cause = format!("{} refused: {why}", describe(request));
    let answer = OperatorAnswer::Refused {
        why: format!("{why}; {}", table::allowed(&record, turn)),
    };
    match store(record, Vec::new()) {
        Decision::Commit(commit) => conclude(*commit, before, request, answer, turn),
        ignored @ Decision::Ignore(..) => ignored,
    }
}

/// Puts the answer in the record and in the audit stream.
fn conclude(
    mut commit: Commit,
    before: Status,
    request: &OperatorRequest,
    answer: OperatorAnswer,
    turn: Turn<'_>,
) -> Decision {
    let record = &mut commit.record;
    record.by_hand.note(request, answer.clone(), turn.now);
    commit.audit = Some(Box::new(AuditEntry {
        request: request.clone(),
        answer,
        at: turn.now,
        replica: turn.replica.to_owned(),
        status_before: before.to_string(),
        status_after: record.status.to_string(),
        cause: record.cause.clone(),
    }));
    Decision::Commit(Box::new(commit))
}

fn describe(request: &OperatorRequest) -> String {
    let (verb, by) = (request.verb.name(), &request.by);
    format!("{verb} by {by}: {}", super::by_hand::cut(&request.reason))
}

/// Whether a verb decides about money on a person's word.
fn settles(record: &SagaRecord, verb: &OperatorVerb) -> bool {
    match verb {
        OperatorVerb::Resolve { .. } | OperatorVerb::Compensate => true,
        // It undoes what wallets have done. Once the saga has turned back that is decided.
        OperatorVerb::Cancel => {
            record.direction == Direction::Forward && money::may_have_moved(record)
        }
        OperatorVerb::Approve { .. }
        | OperatorVerb::Assign { .. }
        | OperatorVerb::Recheck
        | OperatorVerb::RetryNow
        | OperatorVerb::Hold
        | OperatorVerb::Release => false,
    }
}
